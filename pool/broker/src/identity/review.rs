//! Tokens of service accounts: what the owner of a token is to the pool.

use super::{Identity, NoIdentity};
use fpga_net::token_review::{TokenOwner, TokenReviewError, TokenReviewer};
use kube::Client;
use std::sync::Arc;

/// Reviews tokens by the API server.
#[derive(Debug)]
pub struct Reviewer {
    tokens: TokenReviewer,
    managers: String,
    operators: String,
}

impl Reviewer {
    /// Accepts tokens for `audience`. Those of the service account `managers` (NAMESPACE/NAME) are device managers', those of
    /// `operators` see everything, all others are clients'.
    #[must_use]
    pub fn new(client: Client, audience: String, managers: &str, operators: &str) -> Self {
        let tokens = TokenReviewer::new(client, audience);
        Self { tokens, managers: managers.to_owned(), operators: operators.to_owned() }
    }

    pub(super) async fn identity(&self, token: &str) -> Result<Identity, NoIdentity> {
        Ok(self.judge(self.tokens.owner(token).await?)?)
    }

    fn judge(&self, owner: TokenOwner) -> Result<Identity, TokenReviewError> {
        let account = format!("{}/{}", owner.namespace, owner.account);
        // People have tokens without a pod.
        if account == self.operators {
            return Ok(Identity::Operator);
        }
        let tenant = owner.namespace.as_str().into();
        let node = Some(Arc::from(owner.into_node()?));
        Ok(if account == self.managers {
            Identity::Manager { node }
        } else {
            Identity::Client { tenant, node }
        })
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

    fn judge(namespace: &str, account: &str, node: Option<&str>) -> Result<Identity, TokenReviewError> {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let reviewer = Reviewer::new(
            client,
            "fpga-pool".to_owned(),
            "kube-fpga/fpga-device-manager",
            "kube-fpga/fpga-pool-operator",
        );
        reviewer.judge(TokenOwner {
            namespace: namespace.to_owned(),
            account: account.to_owned(),
            node: node.map(str::to_owned),
        })
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
