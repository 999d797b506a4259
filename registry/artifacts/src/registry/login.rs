//! Logins: a user and a password with each request (Basic), or a token that is fetched for them (Bearer).

use super::Body;
use super::error::{RegistryError, printable};
use super::http::{self, Http};
use crate::credentials::Credentials;
use ::http::header::{AUTHORIZATION, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use ::http::{Request, StatusCode, Uri};
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
    credentials: Option<Credentials>,
    /// The header `Authorization` for each scope.
    headers: Mutex<HashMap<Scope, HeaderValue>>,
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

impl Login {
    /// Logins with these credentials, or nobody's.
    pub fn new(credentials: Option<Credentials>) -> Self {
        Self { credentials, headers: Mutex::default() }
    }

    /// Puts the login for `scope` onto a request, if there is one.
    pub async fn sign(&self, scope: &Scope, request: &mut Request<Body>) {
        if let Some(header) = self.headers.lock().await.get(scope) {
            request.headers_mut().insert(AUTHORIZATION, header.clone());
        }
    }

    /// Makes the login for `scope` that the headers of an answer ask for.
    pub async fn renew(
        &self,
        http: &Http,
        registry: &str,
        scope: &Scope,
        headers: &HeaderMap,
    ) -> Result<(), RegistryError> {
        let unauthorized = || RegistryError::Unauthorized(registry.to_owned());
        let challenges: Vec<&str> =
            headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok()).collect();
        let unknown = || RegistryError::Challenge {
            registry: registry.to_owned(),
            challenge: printable(&challenges.join(", ")),
        };
        let parsed = challenges.iter().map(|text| http_auth::parse_challenges(text));
        let parsed = parsed.collect::<Result<Vec<_>, _>>().map_err(|_| unknown())?.concat();
        let of_scheme = |scheme: &str| parsed.iter().find(|found| found.scheme.eq_ignore_ascii_case(scheme));
        let header = if let Some(bearer) = of_scheme("Bearer") {
            let parameter = |name: &str| {
                let found = bearer.params.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
                found.map(|(_, value)| value.to_unescaped())
            };
            let realm = parameter("realm").ok_or_else(unknown)?;
            let service = parameter("service").unwrap_or_default();
            format!("Bearer {}", self.token(http, registry, &realm, &service, scope).await?)
        } else if of_scheme("Basic").is_some() {
            self.credentials.as_ref().ok_or_else(unauthorized)?.basic()
        } else {
            return Err(unknown());
        };
        let mut header = HeaderValue::from_str(&header).map_err(|_| unauthorized())?;
        header.set_sensitive(true);
        self.headers.lock().await.insert(scope.clone(), header);
        Ok(())
    }

    /// A token for `scope`, by the token specification of Distribution.
    async fn token(
        &self,
        http: &Http,
        registry: &str,
        realm: &str,
        service: &str,
        scope: &Scope,
    ) -> Result<String, RegistryError> {
        let separator = if realm.contains('?') { '&' } else { '?' };
        let query = format!("service={}&scope={}", encode(service), encode(&scope.0));
        let elsewhere =
            || RegistryError::Elsewhere { registry: registry.to_owned(), place: printable(realm) };
        let uri: Uri = format!("{realm}{separator}{query}").parse().map_err(|_| elsewhere())?;
        if !http.may_ask(&uri) {
            return Err(elsewhere());
        }
        let mut request = Request::get(uri);
        if let Some(credentials) = &self.credentials {
            request = request.header(AUTHORIZATION, credentials.basic());
        }
        let response = http.send(http::request(request, http::empty())?, 0).await?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                return Err(RegistryError::Unauthorized(registry.to_owned()));
            }
            status => {
                let message = http.message(response).await;
                let doing = "asking for a token".to_owned();
                return Err(RegistryError::Refused { registry: registry.to_owned(), doing, status, message });
            }
        }
        let bytes = http.read(response, MAX_TOKEN_BYTES, "the token").await?;
        let token = serde_json::from_slice::<Token>(&bytes).ok();
        let token = token.map(|token| if token.token.is_empty() { token.access_token } else { token.token });
        token
            .filter(|token| !token.is_empty())
            .ok_or_else(|| RegistryError::Unauthorized(registry.to_owned()))
    }
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
