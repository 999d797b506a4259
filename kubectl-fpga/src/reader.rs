//! Tokens by which replicas know who reads. The user's own credentials never go to a replica: the API server's proxy
//! would pass them on over plain HTTP. So the API server makes a token of a service account, for the part's audience
//! alone, and for ten minutes.

use crate::account::Account;
use crate::connection::{Cluster, ConnectArgs};
use crate::part::Part;
use crate::problem::{Grant, Problem};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use tokio::sync::Mutex;

/// Name of the service account of readers, which may get the pods of all namespaces.
const ACCOUNT: &str = "fpga-reader";
/// Time for which a token is valid: the least that the API server gives.
const TOKEN_SECONDS: i64 = 600;

const TOKEN: Grant = Grant {
    namespace: Some("kube-fpga"),
    verbs: "create",
    resources: "serviceaccounts/token --resource-name=fpga-reader",
};

/// The token for the replicas of a part, which is made when one of them asks for it.
pub(crate) struct Reader {
    part: Part,
    connect: ConnectArgs,
    /// The cluster, if there is a connection already.
    cluster: Option<Cluster>,
    token: Mutex<Option<String>>,
}

impl Reader {
    pub(crate) fn new(part: Part, connect: &ConnectArgs, cluster: Option<&Cluster>) -> Self {
        Self { part, connect: connect.clone(), cluster: cluster.cloned(), token: Mutex::default() }
    }

    /// The token, if a replica has asked for one.
    pub(crate) async fn token(&self) -> Option<String> {
        self.token.lock().await.clone()
    }

    /// Another token than the one that was refused.
    ///
    /// # Errors
    /// [`Problem`] if the API server makes none.
    pub(crate) async fn renew(&self, refused: Option<&str>) -> Result<String, Problem> {
        let mut token = self.token.lock().await;
        if let Some(known) = token.as_deref().filter(|known| Some(*known) != refused) {
            return Ok(known.to_owned());
        }
        let cluster = match &self.cluster {
            Some(cluster) => cluster,
            None => &self.connect.cluster().await?,
        };
        Ok(token.insert(self.request(cluster).await?).clone())
    }

    async fn request(&self, cluster: &Cluster) -> Result<String, Problem> {
        let account = self.account();
        let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &account.namespace);
        let spec = TokenRequestSpec {
            audiences: Some(vec![self.part.audience().to_owned()]),
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = api.create_token_request(&account.name, &PostParams::default(), &request).await;
        let doing = format!("asking for a token of {account} for the {}", self.part.name());
        let answer = answer.map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => Problem::Other {
                doing: doing.clone(),
                error: "there is no such service account: the chart makes it, and --reader NAMESPACE/NAME names another one"
                    .to_owned(),
            },
            error => Problem::of_api(error, &cluster.server, &doing, &TOKEN),
        })?;
        let none = || Problem::Other { doing, error: "the API server gave none".to_owned() };
        answer.status.and_then(|status| status.token).ok_or_else(none)
    }

    /// The service account of the tokens.
    pub(crate) fn account(&self) -> Account {
        let of_chart = || {
            let (namespace, _) = self.connect.service(self.part);
            Account { namespace: namespace.to_owned(), name: ACCOUNT.to_owned() }
        };
        self.connect.reader.clone().unwrap_or_else(of_chart)
    }
}
