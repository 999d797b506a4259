//! Tokens of service accounts: the API server says whose pod shows one, and on which node the pod runs. What the owner
//! of a token may do is up to the services.

use crate::token_file::MAX_BYTES;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::api::PostParams;
use kube::{Api, Client};
use std::fmt;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::{debug, warn};

/// Most reviews at once. All peers connect when a service starts.
const MAX_REVIEWS: usize = 32;
/// Maximum time of a review, its wait for a place included.
const REVIEW_TIMEOUT: Duration = Duration::from_secs(4);
/// Key under which the API server names the node of a token's pod (Kubernetes 1.32 and newer).
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
/// What the names of service accounts begin with as users.
const ACCOUNT_PREFIX: &str = "system:serviceaccount:";

/// Reviews tokens that were issued for one audience.
pub struct TokenReviewer {
    reviews: Api<TokenReview>,
    audience: String,
    permits: Semaphore,
}

/// Whose token it is, as the API server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenOwner {
    /// Namespace of the service account.
    pub namespace: String,
    /// Name of the service account.
    pub account: String,
    /// Node of the pod that shows the token; `None` for a token that is bound to no pod, as people have.
    pub node: Option<String>,
}

/// The reason why a token proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenReviewError {
    /// The token proves nothing; the text says why.
    #[error("the token is refused: {0}")]
    Refused(&'static str),
    /// The API server doesn't answer, or not in time.
    #[error("tokens can't be checked now")]
    NotNow,
}

impl TokenReviewer {
    /// Accepts tokens that were issued for `audience`.
    #[must_use]
    pub fn new(client: Client, audience: String) -> Self {
        Self { reviews: Api::all(client), audience, permits: Semaphore::new(MAX_REVIEWS) }
    }

    /// The audience.
    #[must_use]
    pub fn audience(&self) -> &str {
        &self.audience
    }

    /// Asks the API server for the owner of `token`. The answer comes within 4 s.
    ///
    /// # Errors
    /// [`TokenReviewError`].
    pub async fn owner(&self, token: &str) -> Result<TokenOwner, TokenReviewError> {
        let owner = if has_form_of_token(token) {
            timeout(REVIEW_TIMEOUT, self.review(token)).await.unwrap_or(Err(TokenReviewError::NotNow))
        } else {
            Err(TokenReviewError::Refused("it has not the form of a service account's"))
        };
        owner.inspect_err(|why| debug!(%why, "A peer is not believed"))
    }

    async fn review(&self, token: &str) -> Result<TokenOwner, TokenReviewError> {
        // The semaphore is never closed.
        let _permit = self.permits.acquire().await.map_err(|_| TokenReviewError::NotNow)?;
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: Some(vec![self.audience.clone()]) };
        let review = TokenReview { spec, ..TokenReview::default() };
        let review = self.reviews.create(&PostParams::default(), &review).await.map_err(|error| {
            warn!(%error, "Tokens can't be checked");
            TokenReviewError::NotNow
        })?;
        TokenOwner::of(review.status.unwrap_or_default(), &self.audience).map_err(TokenReviewError::Refused)
    }
}

impl TokenOwner {
    /// The owner of a token that was reviewed with this result.
    ///
    /// # Errors
    /// The reason why the token proves nothing.
    fn of(status: TokenReviewStatus, audience: &String) -> Result<Self, &'static str> {
        if status.authenticated != Some(true) {
            return Err("it is no token of this cluster, or no more");
        }
        // An API server without support for audiences returns none and has not checked them.
        if !status.audiences.is_some_and(|audiences| audiences.contains(audience)) {
            return Err("it was made for another audience");
        }
        let user = status.user.unwrap_or_default();
        let name = user.username.unwrap_or_default();
        let account = name.strip_prefix(ACCOUNT_PREFIX).and_then(|account| account.split_once(':'));
        let Some((namespace, account)) = account else { return Err("it is no service account's") };
        let names = user.extra.unwrap_or_default().remove(NODE_NAME).unwrap_or_default();
        let node = <[String; 1]>::try_from(names).ok().map(|[name]| name);
        Ok(Self { namespace: namespace.to_owned(), account: account.to_owned(), node })
    }

    /// The node of the pod that shows the token.
    ///
    /// # Errors
    /// [`TokenReviewError::Refused`] for a token that names no node.
    pub fn into_node(self) -> Result<String, TokenReviewError> {
        let why = "it names no node: it is bound to no pod, or Kubernetes is older than 1.32";
        self.node.ok_or(TokenReviewError::Refused(why))
    }
}

/// No other text is worth a review.
fn has_form_of_token(token: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    token.len() <= MAX_BYTES
        && token.bytes().all(is_plain)
        && token.bytes().filter(|byte| *byte == b'.').count() == 2
}

impl fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenReviewer").field("audience", &self.audience).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn owner(status: Value) -> Result<TokenOwner, &'static str> {
        TokenOwner::of(serde_json::from_value(status).unwrap(), &"us".to_owned())
    }

    fn status() -> Value {
        json!({
            "authenticated": true, "audiences": ["us"],
            "user": {"username": "system:serviceaccount:team:default", "extra": {(NODE_NAME): ["n1"]}},
        })
    }

    fn changed(place: &str, value: Value) -> Value {
        let mut changed = status();
        *changed.pointer_mut(place).unwrap() = value;
        changed
    }

    #[test]
    fn a_pods_token_proves_its_service_account_and_its_node() {
        let owner = owner(status()).unwrap();
        assert_eq!((owner.namespace.as_str(), owner.account.as_str()), ("team", "default"));
        assert_eq!(owner.into_node(), Ok("n1".to_owned()));
    }

    #[test]
    fn a_token_of_others_proves_nothing() {
        for (place, value) in [
            ("/authenticated", json!(false)),
            ("/authenticated", Value::Null),
            ("/audiences", json!(["others"])),
            ("/audiences", Value::Null),
            ("/user/username", json!("admin")),
            ("/user/username", json!("default")),
        ] {
            assert!(owner(changed(place, value.clone())).is_err(), "{place} {value}");
        }
    }

    #[test]
    fn a_token_that_names_no_node_or_several_proves_none() {
        for names in [json!({}), json!({(NODE_NAME): []}), json!({(NODE_NAME): ["n1", "n2"]})] {
            assert!(owner(changed("/user/extra", names.clone())).unwrap().into_node().is_err(), "{names}");
        }
    }

    #[test]
    fn only_what_looks_like_a_token_is_worth_a_question() {
        assert!(has_form_of_token("a-.b_.9"));
        let long = format!("{}..", "a".repeat(MAX_BYTES));
        for text in ["", "abc", "a.b", "a.b.c.d", "a.b.c d", "a.b.ü", &long] {
            assert!(!has_form_of_token(text), "{text}");
        }
    }
}
