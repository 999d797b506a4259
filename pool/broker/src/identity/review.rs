//! Tokens of service accounts: the API server says whose pod shows one, and on which node the pod runs.

use super::{Identity, NoIdentity};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use std::fmt;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

/// Most reviews at once. All managers and clients connect when a broker becomes active.
const MAX_REVIEWS: usize = 32;
/// Maximum time of a review, its wait for a place included.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(4);
/// Key under which the API server names the node of a token's pod (Kubernetes 1.32 and newer).
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// What the names of service accounts begin with as users.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Reviews tokens by the API server.
pub struct Reviewer {
    reviews: Api<TokenReview>,
    audience: String,
    managers: String,
    operators: String,
    permits: Semaphore,
}

impl Reviewer {
    /// Accepts tokens for `audience`. Those of the service account `managers` (NAMESPACE/NAME) are device managers', those of
    /// `operators` see everything, all others are clients'.
    #[must_use]
    pub fn new(client: Client, audience: String, managers: &str, operators: &str) -> Self {
        let user = |account: &str| format!("{ACCOUNT_PREFIX}{}", account.replacen('/', ":", 1));
        let (managers, operators) = (user(managers), user(operators));
        let permits = Semaphore::new(MAX_REVIEWS);
        Self { reviews: Api::all(client), audience, managers, operators, permits }
    }

    pub(super) async fn identity(&self, token: &str) -> Result<Identity, NoIdentity> {
        if !has_form_of_token(token) {
            return Err(NoIdentity::Token);
        }
        timeout(REVIEW_TIMEOUT, self.review(token)).await.unwrap_or(Err(NoIdentity::NotNow))
    }

    async fn review(&self, token: &str) -> Result<Identity, NoIdentity> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await.map_err(|_| NoIdentity::NotNow)?;
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: Some(vec![self.audience.clone()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.reviews.create(&PostParams::default(), &review).await.map_err(|error| {
            warn!(%error, "Tokens can't be checked");
            NoIdentity::NotNow
        })?;
        self.judge(review.status.unwrap_or_default()).map_err(|why| {
            debug!(why, "A token is refused");
            NoIdentity::Token
        })
    }

    fn judge(&self, status: TokenReviewStatus) -> Result<Identity, &'static str> {
        if status.authenticated != Some(true) {
            return Err("it is no token of this cluster, or no more");
        }
        // An API server without support for audiences returns none and has not checked them.
        if !status.audiences.is_some_and(|audiences| audiences.contains(&self.audience)) {
            return Err("it was made for another audience");
        }
        let user = status.user.unwrap_or_default();
        let name = user.username.unwrap_or_default();
        let account = name.strip_prefix(ACCOUNT_PREFIX).and_then(|account| account.split_once(':'));
        let Some((namespace, _)) = account else { return Err("it is no service account's") };
        // People have tokens without a pod.
        if name == self.operators {
            return Ok(Identity::Operator);
        }
        let names = user.extra.unwrap_or_default().remove(NODE_NAME).unwrap_or_default();
        let node = match <[String; 1]>::try_from(names) {
            Ok([name]) => Some(name.into()),
            Err(_) => {
                return Err("it names no node: it is bound to no pod, or Kubernetes is older than 1.32");
            }
        };
        Ok(if name == self.managers {
            Identity::Manager { node }
        } else {
            Identity::Client { tenant: namespace.into(), node }
        })
    }
}

/// No other text is worth a review.
fn has_form_of_token(token: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    token.bytes().all(is_plain) && token.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl fmt::Debug for Reviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { audience, managers, operators, .. } = self;
        f.debug_struct("Reviewer")
            .field("audience", audience)
            .field("managers", managers)
            .field("operators", operators)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn judge(status: Value) -> Result<Identity, &'static str> {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let client = Client::try_from(config).unwrap();
        let reviewer = Reviewer::new(
            client,
            "fpga-pool".to_owned(),
            "kube-fpga/fpga-device-manager",
            "kube-fpga/fpga-pool-operator",
        );
        reviewer.judge(serde_json::from_value(status).unwrap())
    }

    fn status(user: &str) -> Value {
        json!({
            "authenticated": true, "audiences": ["fpga-pool"],
            "user": {"username": user, "extra": {(NODE_NAME): ["n1"]}},
        })
    }

    #[tokio::test]
    async fn a_pods_token_proves_its_namespace_and_node() {
        let client = Identity::Client { tenant: "team".into(), node: Some("n1".into()) };
        assert_eq!(judge(status("system:serviceaccount:team:default")), Ok(client));
        let manager = Identity::Manager { node: Some("n1".into()) };
        assert_eq!(judge(status("system:serviceaccount:kube-fpga:fpga-device-manager")), Ok(manager));
        let mut operator = status("system:serviceaccount:kube-fpga:fpga-pool-operator");
        operator["user"]["extra"] = Value::Null;
        assert_eq!(judge(operator), Ok(Identity::Operator));
        for (place, value) in [
            ("/authenticated", json!(false)),
            ("/audiences", json!(["others"])),
            ("/audiences", Value::Null),
            ("/user/username", json!("admin")),
            ("/user/extra", json!({})),
            ("/user/extra", json!({(NODE_NAME): ["n1", "n2"]})),
        ] {
            let mut changed = status("system:serviceaccount:team:default");
            *changed.pointer_mut(place).unwrap() = value;
            assert!(judge(changed.clone()).is_err(), "{changed}");
        }
    }

    #[test]
    fn only_what_looks_like_a_token_is_worth_a_question() {
        assert!(has_form_of_token("a-.b_.9"));
        assert!(
            ["", "abc", "a.b", "a.b.c.d", "a.b.c d", "a.b.ü"].iter().all(|text| !has_form_of_token(text))
        );
    }
}
