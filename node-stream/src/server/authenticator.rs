//! Authentication of collectors: for which node a collector may send states.
//!
//! The token of a service account comes from the kubelet, and the API server tells on which node the token's pod
//! runs. A client certificate names the node in its SAN. A shared token proves only that its bearer is some
//! collector.

use super::receiver::StreamRefusal;
use crate::access::Access;
use fpga_net::token_file::TokenFile;
use fpga_net::token_review::{TokenOwner, TokenReviewError, TokenReviewer};
use kube::Client;
use std::sync::Arc;
use tonic::metadata::MetadataMap;
use tracing::warn;

/// The authentication that the port requires, besides client certificates.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one in the process")]
pub enum Authenticator {
    /// No token.
    Open,
    /// The token in a file that all collectors share.
    Shared(TokenFile),
    /// The token of a pod with a certain service account.
    ServiceAccount(Reviewer),
}

/// The nodes whose states a collector may send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodeScope {
    /// Any node: the authentication names none.
    Any,
    /// The nodes with these names.
    Named(Arc<[String]>),
}

/// Reviews tokens by the API server.
#[derive(Debug)]
pub struct Reviewer {
    tokens: TokenReviewer,
    namespace: String,
    account: String,
}

impl From<Access> for Authenticator {
    fn from(access: Access) -> Self {
        match access {
            Access::Open => Self::Open,
            Access::Token(file) => Self::Shared(file),
        }
    }
}

impl NodeScope {
    /// Whether `node` is included.
    #[must_use]
    pub fn contains(&self, node: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Named(names) => names.iter().any(|name| name == node),
        }
    }
}

impl Authenticator {
    /// The nodes whose states the sender of the headers `shown` may send.
    ///
    /// # Errors
    /// [`StreamRefusal::Token`] for a wrong or missing token, [`StreamRefusal::NotReady`] if tokens can't be checked
    /// now.
    pub async fn check(&self, shown: &MetadataMap) -> Result<NodeScope, StreamRefusal> {
        let header = shown.get("authorization").map(|header| header.as_bytes());
        match self {
            Self::Open => Ok(NodeScope::Any),
            Self::Shared(file) => {
                let token = file.read().map_err(|error| {
                    warn!(%error, "Streams are refused");
                    StreamRefusal::NotReady
                })?;
                let proved = header.is_some_and(|header| token.is_proved_by(header));
                if proved { Ok(NodeScope::Any) } else { Err(StreamRefusal::Token) }
            }
            Self::ServiceAccount(reviewer) => {
                let token = header.and_then(bearer).ok_or(StreamRefusal::Token)?;
                let node = reviewer.node_of(reviewer.tokens.owner(token).await?)?;
                Ok(NodeScope::Named([node].into()))
            }
        }
    }
}

/// The bearer token in a header.
fn bearer(header: &[u8]) -> Option<&str> {
    let (scheme, token) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("Bearer").then_some(token)
}

impl Reviewer {
    /// Accepts tokens of the service account `namespace`/`account` that were issued for `audience`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, account: &str, audience: &str) -> Self {
        let tokens = TokenReviewer::new(client, audience.to_owned());
        Self { tokens, namespace: namespace.to_owned(), account: account.to_owned() }
    }

    fn node_of(&self, owner: TokenOwner) -> Result<String, TokenReviewError> {
        if owner.namespace != self.namespace || owner.account != self.account {
            return Err(TokenReviewError::Refused("it is another service account's"));
        }
        owner.into_node()
    }
}

impl From<TokenReviewError> for StreamRefusal {
    fn from(error: TokenReviewError) -> Self {
        match error {
            TokenReviewError::Refused(_) => Self::Token,
            TokenReviewError::NotNow => Self::NotReady,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(namespace: &str, account: &str, node: Option<&str>) -> TokenOwner {
        let [namespace, account] = [namespace, account].map(str::to_owned);
        TokenOwner { namespace, account, node: node.map(str::to_owned) }
    }

    #[tokio::test]
    async fn a_token_speaks_for_the_node_that_its_pod_runs_on() {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let reviewer = Reviewer::new(client, "kube-fpga", "fpga-collector", "us");
        let node_of = |owner| reviewer.node_of(owner).ok();
        assert_eq!(node_of(owner("kube-fpga", "fpga-collector", Some("n1"))), Some("n1".to_owned()));
        assert_eq!(node_of(owner("kube-fpga", "fpga-collector", None)), None);
        assert_eq!(node_of(owner("other", "fpga-collector", Some("n1"))), None);
        assert_eq!(node_of(owner("kube-fpga", "other", Some("n1"))), None);
    }

    #[test]
    fn a_header_without_a_bearer_token_has_none() {
        assert_eq!(bearer(b"Bearer aa.bb.cc"), Some("aa.bb.cc"));
        assert_eq!(bearer(b"bearer a-.b_.9"), Some("a-.b_.9"));
        for header in [b"".as_slice(), b"Bearer", b"Basic a.b.c", b"Bearer \xff.b.c"] {
            assert_eq!(bearer(header), None, "{header:?}");
        }
    }

    #[test]
    fn whoever_names_nodes_speaks_for_no_other() {
        let named = NodeScope::Named(["n1".to_owned(), "*.example".to_owned()].into());
        assert!(
            named.contains("n1")
                && !named.contains("n2")
                && !named.contains("a.example")
                && !named.contains("N1")
        );
        assert!(NodeScope::Any.contains("n2"));
        assert!(!NodeScope::Named(Arc::default()).contains("n1"));
    }
}
