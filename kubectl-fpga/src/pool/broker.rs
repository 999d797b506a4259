//! The active broker: at the address that is given, or by way of the API server.

mod forward;

use crate::connection::{Cluster, ConnectArgs};
use crate::problem::{Grant, Problem};
use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;
use forward::Forward;
use fpga_net::grpc_client::{self, Tls};
use fpga_net::tls::ClientFiles;
use fpga_pool_api::v1;
use fpga_pool_api::v1::broker_client::BrokerClient;
use http::Uri;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;
use tempfile::NamedTempFile;
use tokio::time::timeout;
use tonic::Code;

/// Labels of the broker's pods.
const PODS: &str = "app.kubernetes.io/name=fpga-pool";
/// Service account whose tokens see the whole pool.
const OPERATOR: &str = "fpga-pool-operator";
/// Audience of the broker's tokens.
const AUDIENCE: &str = "fpga-pool";
/// `ConfigMap` with the authority of the broker's certificate.
const AUTHORITIES: &str = "fpga-stream-ca";
/// Time for which the token is valid: the least that the API server gives.
const TOKEN_SECONDS: i64 = 600;
/// Longest answer that is accepted: that of 10,000 managers has some megabytes.
const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Where the broker is, and who asks it.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Broker")]
pub(crate) struct BrokerArgs {
    /// Address of a broker, http://HOST:PORT or https://HOST:PORT; by default its pods are found, and reached by `kubectl
    /// port-forward`.
    #[arg(long, env = "FPGA_BROKER", value_name = "URL")]
    broker: Option<Uri>,
    /// Authority of a broker with https, PEM.
    #[arg(long, env = "FPGA_BROKER_CA", value_name = "PATH", requires = "broker")]
    broker_ca: Option<PathBuf>,
    /// Name in the broker's certificate, if it differs from the address, as behind a forwarded port.
    #[arg(long, env = "FPGA_BROKER_TLS_NAME", value_name = "NAME", requires = "broker")]
    broker_tls_name: Option<String>,
    /// File of the token that the broker asks for: an operator's, or a tenant's, who sees its own jobs.
    #[arg(long, env = "FPGA_BROKER_TOKEN_FILE", value_name = "PATH", requires = "broker")]
    broker_token_file: Option<PathBuf>,
    /// Namespace of the broker.
    #[arg(long, env = "FPGA_BROKER_NAMESPACE", value_name = "NAME", default_value = "kube-fpga")]
    broker_namespace: String,
}

/// Why a broker did not tell of the pool.
enum NoAnswer {
    /// Another replica is active.
    StandsBy,
    Failed(anyhow::Error),
}

impl BrokerArgs {
    /// What the active broker knows.
    ///
    /// # Errors
    /// There is no broker, none is active, or the active one does not believe the user.
    pub(crate) async fn look(&self, connect: &ConnectArgs) -> Result<v1::Pool> {
        match &self.broker {
            Some(url) => self.look_at(url, connect.time()).await,
            None => self.look_in_cluster(connect).await,
        }
    }

    /// Whether the address of a broker is given, so that no cluster is needed.
    pub(crate) fn is_given(&self) -> bool {
        self.broker.is_some()
    }

    async fn look_at(&self, url: &Uri, time: Duration) -> Result<v1::Pool> {
        ensure!(
            url.host().is_some() && matches!(url.scheme_str(), Some("http" | "https")),
            "--broker {url} is no address; write for example http://127.0.0.1:9480"
        );
        if url.scheme_str() == Some("https") && self.broker_ca.is_none() {
            bail!("--broker {url} has TLS: name its authority by --broker-ca");
        }
        let token = match &self.broker_token_file {
            Some(path) => {
                std::fs::read_to_string(path).with_context(|| format!("can't read {}", path.display()))?
            }
            None => String::new(),
        };
        let files = self.broker_ca.clone().map(|ca| ClientFiles { ca, identity: None });
        let name = self.broker_tls_name.as_deref();
        let tls = files.as_ref().map(|files| Tls { files, name });
        match ask(url, tls, token.trim(), time).await {
            Ok(pool) => Ok(pool),
            Err(NoAnswer::StandsBy) => {
                bail!("the broker {url} stands by: another replica is active, or none is yet; ask that one")
            }
            Err(NoAnswer::Failed(error)) => Err(error.context(format!(
                "the broker {url} does not tell of the pool; --broker-token-file has an operator's or a tenant's token"
            ))),
        }
    }

    async fn look_in_cluster(&self, connect: &ConnectArgs) -> Result<v1::Pool> {
        let cluster = connect.cluster().await?;
        let namespace = &self.broker_namespace;
        let pods = self.pods(&cluster).await?;
        if pods.is_empty() {
            bail!(
                "no fpga-pool runs in the namespace {namespace}. Install it (pool.enabled of the chart), name its \
                 namespace with --broker-namespace, or give its address with --broker URL"
            );
        }
        let token = self.token(&cluster).await?;
        let authorities = self.authorities(&cluster).await?;
        let files = ClientFiles { ca: authorities.path().to_owned(), identity: None };
        let name = format!("fpga-pool.{namespace}.svc");
        let mut last = None;
        for pod in &pods {
            let forward = Forward::start(connect, namespace, pod).await?;
            let tls = Tls { files: &files, name: Some(&name) };
            match ask(&forward.url()?, Some(tls), &token, connect.time()).await {
                Ok(pool) => return Ok(pool),
                Err(NoAnswer::StandsBy) => {}
                Err(NoAnswer::Failed(error)) => {
                    last = Some(error.context(format!("{pod} does not tell of the pool")));
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            let pods = pods.join(", ");
            anyhow::anyhow!(
                "no broker is active: {pods} stand by. `kubectl -n {namespace} logs {pods}` may say why"
            )
        }))
    }

    /// Names of the broker's pods that run.
    async fn pods(&self, cluster: &Cluster) -> Result<Vec<String>> {
        let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &self.broker_namespace);
        let found = api.list(&ListParams::default().labels(PODS)).await.map_err(|error| {
            let grant = Grant { namespace: Some("kube-fpga"), verbs: "list", resources: "pods" };
            Problem::of_api(&error, &cluster.server, "finding the broker", &grant)
        })?;
        let runs =
            |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        Ok(found.items.iter().filter(|pod| runs(pod)).map(ResourceExt::name_any).collect())
    }

    /// A token that sees the whole pool and opens nothing else.
    async fn token(&self, cluster: &Cluster) -> Result<String> {
        let api: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), &self.broker_namespace);
        let spec = TokenRequestSpec {
            audiences: Some(vec![AUDIENCE.to_owned()]),
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = api.create_token_request(OPERATOR, &PostParams::default(), &request).await;
        let answer = answer.map_err(|error| {
            let grant =
                Grant { namespace: Some("kube-fpga"), verbs: "create", resources: "serviceaccounts/token" };
            Problem::of_api(&error, &cluster.server, "asking for a token for the broker", &grant)
        })?;
        answer.status.and_then(|status| status.token).context("the API server gave no token for the broker")
    }

    /// A file with the authority of the broker's certificate.
    async fn authorities(&self, cluster: &Cluster) -> Result<NamedTempFile> {
        let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), &self.broker_namespace);
        let map = api.get_opt(AUTHORITIES).await.map_err(|error| {
            let grant = Grant { namespace: Some("kube-fpga"), verbs: "get", resources: "configmaps" };
            Problem::of_api(&error, &cluster.server, "reading the broker's authority", &grant)
        })?;
        let text = map.and_then(|map| map.data?.remove("ca.crt")).with_context(|| {
            format!(
                "there is no ConfigMap {}/{AUTHORITIES} with the broker's authority: forward a port of a pod of fpga-pool, \
                 and give --broker https://127.0.0.1:PORT with --broker-ca and --broker-tls-name",
                self.broker_namespace
            )
        })?;
        let mut file = NamedTempFile::new().context("no temporary file for the broker's authority")?;
        file.write_all(text.as_bytes())?;
        Ok(file)
    }
}

/// Asks a broker what it knows.
async fn ask(url: &Uri, tls: Option<Tls<'_>>, token: &str, time: Duration) -> Result<v1::Pool, NoAnswer> {
    let asked = async {
        let channel = grpc_client::connect(url, |endpoint| endpoint, tls).await;
        let channel = channel.map_err(|error| NoAnswer::Failed(error.into()))?;
        let mut broker = BrokerClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES);
        let answer = broker.look(v1::LookRequest { token: token.to_owned() }).await;
        answer.map(tonic::Response::into_inner).map_err(|status| match status.code() {
            Code::Unavailable => NoAnswer::StandsBy,
            _ => NoAnswer::Failed(anyhow::anyhow!("{}", status.message())),
        })
    };
    let answered = timeout(time, asked).await;
    answered
        .unwrap_or_else(|_| Err(NoAnswer::Failed(anyhow::anyhow!("no answer within {} s", time.as_secs()))))
}
