//! Logins: a user and a password with each request (Basic), or a token that is fetched for them (Bearer).

use super::error::{RegistryError, printable};
use super::http::Http;
use super::redirects::{Answer, Ask, Sent};
use crate::credentials::Credentials;
use ::http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use ::http::{Method, Response, StatusCode, Uri};
use hyper::body::Incoming;
use serde::Deserialize;
use std::collections::HashMap;
use std::fmt::Write as _;
use tokio::sync::Mutex;

/// Longest answer of who gives tokens.
const MAX_TOKEN_BYTES: u64 = 64 * 1024;

/// What a token is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Scope(String);

/// The logins at one registry.
pub struct Login {
    credentials: Vec<Credentials>,
    /// The header `Authorization` for each scope.
    headers: Mutex<HashMap<Scope, HeaderValue>>,
}

/// How a registry asks for a login.
pub struct Challenge {
    registry: String,
    kind: Kind,
}

enum Kind {
    Basic,
    /// By a token of the service at this address.
    Bearer {
        realm: Uri,
        service: String,
        scope: Scope,
    },
}

#[derive(Deserialize)]
struct Token {
    #[serde(default)]
    token: String,
    #[serde(default)]
    access_token: String,
}

impl Scope {
    /// Reading of a repository.
    pub fn pull(repository: &str) -> Self {
        Self(format!("repository:{repository}:pull"))
    }

    /// Reading and writing of a repository.
    pub fn push(repository: &str) -> Self {
        Self(format!("repository:{repository}:pull,push"))
    }
}

impl Challenge {
    /// What an answer asks for.
    pub fn new(http: &Http, registry: &str, scope: &Scope, answer: &Answer) -> Result<Self, RegistryError> {
        let challenges = answer.response.headers().get_all(WWW_AUTHENTICATE).iter();
        let challenges: Vec<&str> = challenges.filter_map(|value| value.to_str().ok()).collect();
        let unknown = || RegistryError::Challenge {
            registry: registry.to_owned(),
            challenge: printable(&challenges.join(", ")),
        };
        let parsed = challenges.iter().map(|text| http_auth::parse_challenges(text));
        let parsed = parsed.collect::<Result<Vec<_>, _>>().map_err(|_| unknown())?.concat();
        let of_scheme = |scheme: &str| parsed.iter().find(|found| found.scheme.eq_ignore_ascii_case(scheme));
        let kind = if let Some(bearer) = of_scheme("Bearer") {
            let parameter = |name: &str| {
                let found = bearer.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            let realm = http.place(&answer.uri, &parameter("realm").ok_or_else(unknown)?)?;
            let service = parameter("service").unwrap_or_default();
            Kind::Bearer { realm, service, scope: scope.clone() }
        } else if of_scheme("Basic").is_some() {
            Kind::Basic
        } else {
            return Err(unknown());
        };
        Ok(Self { registry: registry.to_owned(), kind })
    }

    fn unauthorized(&self) -> RegistryError {
        RegistryError::Unauthorized(self.registry.clone())
    }
}

impl Login {
    /// Logins with these credentials, or nobody's.
    pub fn new(credentials: Vec<Credentials>) -> Self {
        Self { credentials, headers: Mutex::default() }
    }

    /// Puts the login for `scope` among the headers of a request, if there is one.
    pub async fn sign(&self, scope: &Scope, headers: &mut HeaderMap) {
        if let Some(header) = self.headers.lock().await.get(scope) {
            headers.insert(AUTHORIZATION, header.clone());
        }
    }

    /// Keeps a login that the registry has taken.
    pub async fn keep(&self, scope: &Scope, header: HeaderValue) {
        self.headers.lock().await.insert(scope.clone(), header);
    }

    /// The ways to log in, in their order: nobody's where there are no credentials.
    pub fn ways(&self) -> impl Iterator<Item = Option<&Credentials>> {
        let nobody = self.credentials.is_empty().then_some(None);
        self.credentials.iter().map(Some).chain(nobody)
    }

    /// The header `Authorization` of a login.
    ///
    /// # Errors
    /// [`RegistryError::Unauthorized`] if these credentials are not taken, and others for the service of tokens.
    pub async fn header(
        &self,
        http: &Http,
        challenge: &Challenge,
        credentials: Option<&Credentials>,
    ) -> Result<HeaderValue, RegistryError> {
        let value = match (&challenge.kind, credentials) {
            (Kind::Bearer { .. }, Some(Credentials::RegistryToken(token))) => format!("Bearer {token}"),
            (Kind::Bearer { realm, service, scope }, _) => {
                let answer = match credentials {
                    Some(Credentials::IdentityToken(token)) => {
                        http.send(exchange(realm, service, scope, token).make().await?, 0).await?
                    }
                    _ => http.follow(request(realm, service, scope, credentials)?).await?.response,
                };
                format!("Bearer {}", token(http, challenge, answer).await?)
            }
            (Kind::Basic, _) => {
                credentials.and_then(Credentials::basic).ok_or_else(|| challenge.unauthorized())?
            }
        };
        header(&value).ok_or_else(|| challenge.unauthorized())
    }
}

/// The request for a token with a password or without, by the token specification of Distribution.
fn request(
    realm: &Uri,
    service: &str,
    scope: &Scope,
    credentials: Option<&Credentials>,
) -> Result<Ask<'static>, RegistryError> {
    let separator = if realm.query().is_some() { '&' } else { '?' };
    let query = format!("service={}&scope={}", encode(service), encode(&scope.0));
    let uri = format!("{realm}{separator}{query}").parse().map_err(::http::Error::from)?;
    let mut get = Ask::new(Method::GET, uri);
    let login = credentials.and_then(Credentials::basic).and_then(|login| header(&login));
    get.headers.extend(login.map(|login| (AUTHORIZATION, login)));
    Ok(get)
}

/// The request that exchanges an identity token for a token, by Distribution's specification of OAuth 2. Its content is
/// for this host alone: no redirect is followed.
fn exchange(realm: &Uri, service: &str, scope: &Scope, token: &str) -> Ask<'static> {
    let mut post = Ask::new(Method::POST, realm.clone());
    let form = "application/x-www-form-urlencoded";
    post.headers.insert(CONTENT_TYPE, HeaderValue::from_static(form));
    let fields = [
        ("grant_type", "refresh_token"),
        ("client_id", "kube-fpga"),
        ("service", service),
        ("scope", &scope.0),
        ("refresh_token", token),
    ];
    let fields = fields.map(|(name, value)| format!("{name}={}", encode(value)));
    post.sent = Sent::Bytes(fields.join("&").into());
    post
}

/// The token in an answer.
async fn token(
    http: &Http,
    challenge: &Challenge,
    response: Response<Incoming>,
) -> Result<String, RegistryError> {
    match response.status() {
        StatusCode::OK => {}
        // By the specification of OAuth 2 a refused token is a bad request.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST => {
            return Err(challenge.unauthorized());
        }
        status => {
            let message = http.message(response).await;
            let (registry, doing) = (challenge.registry.clone(), "asking for a token".to_owned());
            return Err(RegistryError::Refused { registry, doing, status, message });
        }
    }
    let bytes = http.read(response, MAX_TOKEN_BYTES, "the token").await?;
    let token = serde_json::from_slice::<Token>(&bytes).ok();
    let token = token.map(|token| if token.token.is_empty() { token.access_token } else { token.token });
    token.filter(|token| !token.is_empty()).ok_or_else(|| challenge.unauthorized())
}

/// A header that is not logged.
fn header(value: &str) -> Option<HeaderValue> {
    let mut header = HeaderValue::from_str(value).ok()?;
    header.set_sensitive(true);
    Some(header)
}

/// The text as a value in a query.
fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a String does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
