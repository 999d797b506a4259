//! Tokens of service accounts: what the owner of a token is to the pool.

use super::{Identity, NoIdentity};
use fpga_net::token_review::{TokenOwner, TokenReviewError, TokenReviewer};
use kube::Client;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Reviews tokens by the API server.
#[derive(Debug)]
pub struct Reviewer {
    tokens: TokenReviewer,
    managers: String,
    operators: String,
    clients: ClientNamespaces,
}

/// The namespaces whose pods may use the pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ClientNamespaces {
    /// All namespaces.
    #[default]
    All,
    /// These only.
    Only(BTreeSet<String>),
}

impl ClientNamespaces {
    /// The namespaces of a list; all if the list is empty.
    #[must_use]
    pub fn from_list(namespaces: &[String]) -> Self {
        if namespaces.is_empty() { Self::All } else { Self::Only(namespaces.iter().cloned().collect()) }
    }

    fn allow(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(namespaces) => namespaces.contains(namespace),
        }
    }
}

impl Reviewer {
    /// Accepts tokens for `audience`. Those of the service account `managers` (NAMESPACE/NAME) are device managers', those of
    /// `operators` see everything, all others are clients', if their namespace is one of `clients`.
    #[must_use]
    pub fn new(
        client: Client,
        audience: String,
        managers: &str,
        operators: &str,
        clients: ClientNamespaces,
    ) -> Self {
        let tokens = TokenReviewer::new(client, audience);
        Self { tokens, managers: managers.to_owned(), operators: operators.to_owned(), clients }
    }

    pub(super) async fn identity(&self, token: &str) -> Result<Identity, NoIdentity> {
        self.judge(self.tokens.owner(token).await?)
    }

    fn judge(&self, owner: TokenOwner) -> Result<Identity, NoIdentity> {
        let account = format!("{}/{}", owner.namespace, owner.account);
        // People have tokens without a pod.
        if account == self.operators {
            return Ok(Identity::Operator);
        }
        let namespace = owner.namespace.clone();
        let node = Some(Arc::from(owner.into_node()?));
        if account == self.managers {
            return Ok(Identity::Manager { node });
        }
        if !self.clients.allow(&namespace) {
            return Err(NoIdentity::Namespace(namespace));
        }
        Ok(Identity::Client { tenant: namespace.into(), node })
    }
}

impl From<TokenReviewError> for NoIdentity {
    fn from(error: TokenReviewError) -> Self {
        match error {
            TokenReviewError::Refused(_) => Self::Token,
            TokenReviewError::NotNow => Self::NotNow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judge_of(
        clients: ClientNamespaces,
        namespace: &str,
        account: &str,
        node: Option<&str>,
    ) -> Result<Identity, NoIdentity> {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let reviewer = Reviewer::new(
            client,
            "fpga-pool".to_owned(),
            "kube-fpga/fpga-device-manager",
            "kube-fpga/fpga-pool-operator",
            clients,
        );
        reviewer.judge(TokenOwner {
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            node: node.map(str::to_owned),
        })
    }

    fn judge(namespace: &str, account: &str, node: Option<&str>) -> Result<Identity, NoIdentity> {
        judge_of(ClientNamespaces::All, namespace, account, node)
    }

    #[tokio::test]
    async fn pods_of_other_namespaces_than_those_of_the_pool_are_no_clients() {
        let shop = || ClientNamespaces::from_list(&["shop".to_owned()]);
        let client = Identity::Client { tenant: "shop".into(), node: Some("n1".into()) };
        assert_eq!(judge_of(shop(), "shop", "default", Some("n1")), Ok(client));
        for (namespace, account) in
            [("evil", "default"), ("kube-fpga", "default"), ("shop2", "fpga-device-manager")]
        {
            let refused = judge_of(shop(), namespace, account, Some("n1"));
            assert_eq!(refused, Err(NoIdentity::Namespace(namespace.to_owned())));
        }
        // Managers and operators are none of its clients.
        let manager = Identity::Manager { node: Some("n1".into()) };
        assert_eq!(judge_of(shop(), "kube-fpga", "fpga-device-manager", Some("n1")), Ok(manager));
        assert_eq!(judge_of(shop(), "kube-fpga", "fpga-pool-operator", None), Ok(Identity::Operator));
    }

    #[tokio::test]
    async fn a_pods_token_proves_its_namespace_and_node() {
        let client = Identity::Client { tenant: "team".into(), node: Some("n1".into()) };
        assert_eq!(judge("team", "default", Some("n1")), Ok(client));
        let manager = Identity::Manager { node: Some("n1".into()) };
        assert_eq!(judge("kube-fpga", "fpga-device-manager", Some("n1")), Ok(manager));
        assert_eq!(judge("kube-fpga", "fpga-pool-operator", None), Ok(Identity::Operator));
    }

    #[tokio::test]
    async fn a_client_without_a_node_is_not_believed() {
        assert!(judge("team", "default", None).is_err());
        assert!(judge("kube-fpga", "fpga-device-manager", None).is_err());
    }
}
