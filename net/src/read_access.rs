//! Who may read what a service tells people: the owner of a service account's token that may get the pods of the
//! namespace in question, or those of all namespaces. The API server says whose token it is (`TokenReview`), and what
//! its owner may do (`SubjectAccessReview`).
//!
//! People ask through the API server's proxy, which keeps `Authorization` for itself. So the token may also come in
//! [`TOKEN_HEADER`].

use crate::http::Peer;
use crate::token_review::{TokenOwner, TokenReviewError, TokenReviewer};
use crate::turns::Turns;
use axum::Router;
use axum::extract::{RawPathParams, Request};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::api::PostParams;
use kube::{Api, Client};
use parking_lot::Mutex;
use ring::digest::{SHA256, digest};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout};
use tracing::warn;

/// Header with a token, beside `Authorization: Bearer TOKEN`.
pub const TOKEN_HEADER: &str = "x-fpga-token";
/// Parameter of a route's path that has the namespace; routes without it tell of all namespaces.
pub const NAMESPACE_PARAM: &str = "namespace";
/// Time for which a verdict counts without another question to the API server.
const KNOWN_FOR: Duration = Duration::from_secs(10);
/// Maximum number of remembered verdicts.
const MAX_KNOWN: usize = 1024;
/// Maximum time for the API server's answer about a right.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Who may read at a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ReadRule {
    /// Owners of tokens that may get the pods in question.
    Token,
    /// Everybody who reaches the port.
    Anyone,
}

/// Asks the API server who may read.
pub struct ReadAccess {
    tokens: TokenReviewer,
    reviews: Api<SubjectAccessReview>,
    known: Mutex<HashMap<Question, Known>>,
    turns: Turns,
}

/// The hash of a token and what its owner wants to read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Question {
    token: Vec<u8>,
    scope: Scope,
}

#[derive(Debug)]
struct Known {
    verdict: Result<(), Denied>,
    until: Instant,
}

/// What is to be read.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Scope {
    /// What belongs to a namespace.
    Namespace(String),
    /// What belongs to all namespaces.
    All,
}

/// Why a reader gets no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Denied {
    /// The request has no token.
    #[error(
        "this port wants a service account's token for the audience {0}, as `Authorization: Bearer TOKEN` or as \
         {TOKEN_HEADER}; kubectl fpga makes one, and so does: kubectl -n NAMESPACE create token ACCOUNT --audience {0}"
    )]
    NoToken(String),
    /// The token proves nothing.
    #[error("the token is refused: {0}")]
    Token(&'static str),
    /// The owner of the token may not read this.
    #[error("{user} may not get the pods {scope}: a role with the verb `get` for `pods` there lets it read")]
    Right {
        /// The owner of the token.
        user: String,
        /// What is to be read.
        scope: Scope,
    },
    /// The API server does not answer.
    #[error("the API server does not say who may read; try again later")]
    NotNow,
}

impl ReadAccess {
    /// Believes tokens that were issued for `audience`.
    #[must_use]
    pub fn new(client: Client, audience: &str) -> Arc<Self> {
        let reviews = Api::all(client.clone());
        let tokens = TokenReviewer::new(client, audience.to_owned());
        Arc::new(Self { tokens, reviews, known: Mutex::default(), turns: Turns::default() })
    }

    /// Whether the sender of these headers may read. `address` is that of the sender, which has few questions at once.
    ///
    /// # Errors
    /// [`Denied`]
    pub async fn check(
        &self,
        headers: &HeaderMap,
        scope: Scope,
        address: Option<IpAddr>,
    ) -> Result<(), Denied> {
        let token = token(headers).ok_or_else(|| Denied::NoToken(self.tokens.audience().to_owned()))?;
        let question = Question { token: digest(&SHA256, token.as_bytes()).as_ref().to_vec(), scope };
        if let Some(verdict) = self.known(&question) {
            return verdict;
        }
        let _turn = match address {
            None => None,
            Some(address) => {
                let turn = timeout(TIMEOUT, self.turns.wait(address)).await;
                Some(turn.map_err(|_| Denied::NotNow)?)
            }
        };
        // Who had the turn before may have asked the same.
        if let Some(verdict) = self.known(&question) {
            return verdict;
        }
        let verdict = self.ask(token, &question.scope).await;
        if verdict != Err(Denied::NotNow) {
            self.remember(question, verdict.clone());
        }
        verdict
    }

    fn known(&self, question: &Question) -> Option<Result<(), Denied>> {
        let known = self.known.lock();
        let known = known.get(question).filter(|known| Instant::now() < known.until);
        known.map(|known| known.verdict.clone())
    }

    async fn ask(&self, token: &str, scope: &Scope) -> Result<(), Denied> {
        let owner = self.tokens.owner(token).await.map_err(|error| match error {
            TokenReviewError::Refused(why) => Denied::Token(why),
            TokenReviewError::NotNow => Denied::NotNow,
        })?;
        let user = format!("system:serviceaccount:{}:{}", owner.namespace, owner.account);
        if self.may_read(&owner, &user, scope).await? {
            return Ok(());
        }
        Err(Denied::Right { user, scope: scope.clone() })
    }

    fn remember(&self, question: Question, verdict: Result<(), Denied>) {
        let now = Instant::now();
        let mut known = self.known.lock();
        if known.len() >= MAX_KNOWN {
            known.retain(|_, known| now < known.until);
        }
        // A caller can send any number of tokens that are denied.
        if known.len() >= MAX_KNOWN {
            known.retain(|_, known| known.verdict.is_ok());
        }
        if known.len() >= MAX_KNOWN {
            if verdict.is_err() {
                return;
            }
            known.clear();
        }
        known.insert(question, Known { verdict, until: now + KNOWN_FOR });
    }

    async fn may_read(&self, owner: &TokenOwner, user: &str, scope: &Scope) -> Result<bool, Denied> {
        let of_namespace = format!("system:serviceaccounts:{}", owner.namespace);
        let groups = [of_namespace.as_str(), "system:serviceaccounts", "system:authenticated"];
        let attributes = ResourceAttributes {
            verb: Some("get".to_owned()),
            resource: Some("pods".to_owned()),
            namespace: match scope {
                Scope::Namespace(namespace) => Some(namespace.clone()),
                Scope::All => None,
            },
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec {
            user: Some(user.to_owned()),
            groups: Some(groups.map(str::to_owned).to_vec()),
            resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let params = PostParams::default();
        let answer = timeout(TIMEOUT, self.reviews.create(&params, &review)).await;
        let answer = answer.map_err(|_| Denied::NotNow)?.map_err(|error| {
            warn!(%error, "Rights of readers can't be checked");
            Denied::NotNow
        })?;
        Ok(answer.status.is_some_and(|status| status.allowed && status.denied != Some(true)))
    }
}

/// The router, whose routes answer only whom `access` lets read. Without `access` they answer everybody.
pub fn guarded(router: Router, access: Option<Arc<ReadAccess>>) -> Router {
    let Some(access) = access else { return router };
    router.route_layer(from_fn(move |params: RawPathParams, request: Request, next: Next| {
        let access = Arc::clone(&access);
        async move {
            let namespace = params.iter().find(|(name, _)| *name == NAMESPACE_PARAM);
            let scope = namespace.map_or(Scope::All, |(_, namespace)| Scope::Namespace(namespace.to_owned()));
            let address = request.extensions().get().and_then(|peer| match peer {
                Peer::Tcp { address, .. } => Some(address.ip()),
                Peer::Unix { .. } => None,
            });
            match access.check(request.headers(), scope, address).await {
                Ok(()) => next.run(request).await,
                Err(denied) => denied.into_response(),
            }
        }
    }))
}

/// The token of a request; `None` if there is none.
fn token(headers: &HeaderMap) -> Option<&str> {
    let ours = headers.get(TOKEN_HEADER).and_then(|token| token.to_str().ok());
    let bearer = || {
        let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token)
    };
    ours.or_else(bearer).map(str::trim).filter(|token| !token.is_empty())
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(namespace) => write!(f, "of the namespace {namespace}"),
            Self::All => f.write_str("of all namespaces"),
        }
    }
}

impl IntoResponse for Denied {
    fn into_response(self) -> Response {
        let status = match self {
            Self::NoToken(_) | Self::Token(_) => StatusCode::UNAUTHORIZED,
            Self::Right { .. } => StatusCode::FORBIDDEN,
            Self::NotNow => StatusCode::SERVICE_UNAVAILABLE,
        };
        let body = serde_json::json!({ "error": self.to_string() }).to_string();
        let mut response = (status, [(CONTENT_TYPE, "application/json")], body).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl fmt::Debug for ReadAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadAccess").field("tokens", &self.tokens).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_comes_in_either_header() {
        assert_eq!(token(&headers(&[("authorization", "Bearer a.b.c")])), Some("a.b.c"));
        assert_eq!(token(&headers(&[("authorization", "bearer a.b.c")])), Some("a.b.c"));
        let both = headers(&[("authorization", "Basic x"), (TOKEN_HEADER, "d.e.f")]);
        assert_eq!(token(&both), Some("d.e.f"));
        for none in [
            &[][..],
            &[("authorization", "Basic a.b.c")],
            &[("authorization", "a.b.c")],
            &[(TOKEN_HEADER, "")],
        ] {
            assert_eq!(token(&headers(none)), None, "{none:?}");
        }
    }

    #[tokio::test]
    async fn denied_questions_displace_no_reader() {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let access = ReadAccess::new(Client::try_from(config).unwrap(), "us");
        let question = |token: usize| Question { token: token.to_be_bytes().to_vec(), scope: Scope::All };
        access.remember(question(0), Ok(()));
        for number in 1..3 * MAX_KNOWN {
            access.remember(question(number), Err(Denied::Token("x")));
        }
        assert_eq!(access.known(&question(0)), Some(Ok(())));
    }

    #[tokio::test]
    async fn verdicts_that_are_remembered_have_a_maximum_number() {
        let config = kube::Config::new("http://127.0.0.1:9".parse().unwrap());
        let access = ReadAccess::new(Client::try_from(config).unwrap(), "us");
        for number in 0..3 * MAX_KNOWN {
            let question = Question { token: Vec::new(), scope: Scope::Namespace(number.to_string()) };
            access.remember(question, Err(Denied::Token("x")));
        }
        assert!((1..=MAX_KNOWN).contains(&access.known.lock().len()));
    }
}
