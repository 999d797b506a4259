//! Authentication of collectors: for which node a collector may send states.
//!
//! The token of a service account comes from the kubelet, and the API server tells on which node the token's pod
//! runs. A client certificate names the node in its SAN. A shared token proves only that its bearer is some
//! collector.

use super::receiver::StreamRefusal;
use crate::access::Access;
use fpga_net::token_file::{MAX_BYTES, TokenFile};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tonic::metadata::MetadataMap;
use tracing::{debug, warn};

/// Most token reviews at once. All collectors connect when a replica starts.
const MAX_REVIEWS: usize = 16;
/// Longest time of a token review, its wait for a place included.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(4);
/// Key under which the API server names the node of a token's pod (Kubernetes 1.32 and newer).
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";

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
pub struct Reviewer {
    reviews: Api<TokenReview>,
    user: String,
    audience: String,
    permits: Semaphore,
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
                let node = timeout(REVIEW_TIMEOUT, reviewer.node_of(token)).await;
                Ok(NodeScope::Named([node.map_err(|_| StreamRefusal::NotReady)??].into()))
            }
        }
    }
}

/// The bearer token in a header, if it has the form of the API server's tokens. No other text is worth a review.
fn bearer(header: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(header).ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_token = token.len() <= MAX_BYTES
        && token.bytes().all(plain)
        && token.bytes().filter(|byte| *byte == b'.').count() == 2;
    (scheme.eq_ignore_ascii_case("Bearer") && is_token).then_some(token)
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reviewer")
            .field("user", &self.user)
            .field("audience", &self.audience)
            .finish_non_exhaustive()
    }
}

impl Reviewer {
    /// Accepts tokens of the service account `namespace`/`name` that were issued for `audience`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, audience: &str) -> Self {
        Self {
            reviews: Api::all(client),
            user: format!("system:serviceaccount:{namespace}:{name}"),
            audience: audience.to_owned(),
            permits: Semaphore::new(MAX_REVIEWS),
        }
    }

    async fn node_of(&self, token: &str) -> Result<String, StreamRefusal> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await.map_err(|_| StreamRefusal::NotReady)?;
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: Some(vec![self.audience.clone()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.reviews.create(&PostParams::default(), &review).await.map_err(|error| {
            warn!(%error, "Tokens of collectors can't be checked");
            StreamRefusal::NotReady
        })?;
        self.judge(review.status.unwrap_or_default()).map_err(|why| {
            debug!(why, "A collector's token is refused");
            StreamRefusal::Token
        })
    }

    fn judge(&self, status: TokenReviewStatus) -> Result<String, &'static str> {
        if status.authenticated != Some(true) {
            return Err("it is no token of this cluster, or no more");
        }
        // An API server without support for audiences returns none and has not checked them.
        if !status.audiences.is_some_and(|audiences| audiences.contains(&self.audience)) {
            return Err("it was made for another audience");
        }
        let user = status.user.unwrap_or_default();
        if user.username.as_ref() != Some(&self.user) {
            return Err("it is another service account's");
        }
        let names = user.extra.unwrap_or_default().remove(NODE_NAME).unwrap_or_default();
        match <[String; 1]>::try_from(names) {
            Ok([name]) => Ok(name),
            Err(_) => Err("it names no node: it is bound to no pod, or Kubernetes is older than 1.32"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn reviewer() -> Reviewer {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        Reviewer::new(Client::try_from(config).unwrap(), "kube-fpga", "fpga-collector", "us")
    }

    fn status() -> Value {
        json!({
            "authenticated": true, "audiences": ["us"],
            "user": {"username": "system:serviceaccount:kube-fpga:fpga-collector", "extra": {(NODE_NAME): ["n1"]}},
        })
    }

    #[tokio::test]
    async fn a_token_speaks_for_the_node_that_its_pod_runs_on() {
        let judge = |status: Value| reviewer().judge(serde_json::from_value(status).unwrap());
        assert_eq!(judge(status()), Ok("n1".to_owned()));
        for (place, value) in [
            ("/authenticated", json!(false)),
            ("/authenticated", Value::Null),
            ("/audiences", json!(["others"])),
            ("/audiences", Value::Null),
            ("/user/username", json!("system:serviceaccount:other:fpga-collector")),
            ("/user/username", json!("fpga-collector")),
            ("/user/extra", json!({})),
            ("/user/extra", json!({(NODE_NAME): []})),
            ("/user/extra", json!({(NODE_NAME): ["n1", "n2"]})),
        ] {
            let mut changed = status();
            *changed.pointer_mut(place).unwrap() = value;
            assert!(judge(changed.clone()).is_err(), "{changed}");
        }
    }

    #[test]
    fn only_what_looks_like_a_token_is_worth_a_question() {
        assert_eq!(bearer(b"Bearer aa.bb.cc"), Some("aa.bb.cc"));
        assert_eq!(bearer(b"bearer a-.b_.9"), Some("a-.b_.9"));
        let long = format!("Bearer {}..", "a".repeat(MAX_BYTES));
        for header in [
            "",
            "Bearer",
            "Bearer aabbcc",
            "Bearer a.b",
            "Bearer a.b.c.d",
            "Basic a.b.c",
            "Bearer a.b.c d",
            &long,
        ] {
            assert_eq!(bearer(header.as_bytes()), None, "{header}");
        }
        assert_eq!(bearer(b"Bearer \xff.b.c"), None);
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
