//! Who may read the page: the browser of the user who started it, and nobody else on this machine or in the browser.
//!
//! The address has a random token, which other users of the machine don't know. The name of the host is checked, so that no
//! web page reads this one by a DNS name of its own that points here, and so is the origin of requests that name one.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use ring::error::Unspecified;
use ring::rand::{SecureRandom as _, SystemRandom};
use std::fmt::Write as _;
use std::net::SocketAddr;
use subtle::ConstantTimeEq as _;

/// Random bytes of a token.
const TOKEN_BYTES: usize = 24;

/// Headers of each answer: nothing is loaded or run but from this server, nothing is kept, and nobody else may use it.
pub const HEADERS: [(HeaderName, HeaderValue); 6] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static(
            "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        ),
    ),
    (header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff")),
    (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    (header::REFERRER_POLICY, HeaderValue::from_static("no-referrer")),
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin")),
    (HeaderName::from_static("cross-origin-opener-policy"), HeaderValue::from_static("same-origin")),
];

/// The checks of a page's server.
#[derive(Clone)]
pub struct Guard {
    token: String,
    /// The names of the server in `Host`.
    hosts: [String; 2],
}

/// Why a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The method changes things.
    #[error("only GET is served")]
    Method,
    /// The name of the host is another one's.
    #[error("this server has another name; take the address that it printed")]
    Host,
    /// Another web page asks.
    #[error("other pages may not ask")]
    Origin,
    /// The token is missing or wrong.
    #[error("the address lacks the right token; take the address that `kubectl fpga web` printed")]
    Token,
}

impl Guard {
    /// A guard with a new token for a server at `address`.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn new(address: SocketAddr) -> Result<Self, Unspecified> {
        let mut bytes = [0; TOKEN_BYTES];
        SystemRandom::new().fill(&mut bytes)?;
        let token = bytes.iter().fold(String::new(), |mut text, byte| {
            // Writing to a string can't fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        let hosts = [address.to_string(), format!("localhost:{}", address.port())];
        Ok(Self { token, hosts })
    }

    /// The address of the page.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.hosts[0], self.token)
    }

    /// The part of the path after the token, if the request may be answered.
    ///
    /// # Errors
    /// [`Refused`] says why it may not.
    pub fn check<'p>(&self, method: &Method, headers: &HeaderMap, path: &'p str) -> Result<&'p str, Refused> {
        if method != Method::GET {
            return Err(Refused::Method);
        }
        let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        let is_ours = |host: &str| self.hosts.iter().any(|ours| ours == host);
        if !text(header::HOST).is_some_and(is_ours) || headers.get_all(header::HOST).iter().count() != 1 {
            return Err(Refused::Host);
        }
        let is_ours = |origin: &str| origin.strip_prefix("http://").is_some_and(is_ours);
        if text(header::ORIGIN).is_some_and(|origin| !is_ours(origin)) {
            return Err(Refused::Origin);
        }
        let (token, rest) =
            path.strip_prefix('/').and_then(|path| path.split_once('/')).ok_or(Refused::Token)?;
        let site = text(HeaderName::from_static("sec-fetch-site"));
        // The page itself may be opened by a link that has the token; what belongs to it, by the page alone.
        let is_opened =
            rest.is_empty() && text(HeaderName::from_static("sec-fetch-dest")) == Some("document");
        if !is_opened && site.is_some_and(|site| !matches!(site, "same-origin" | "none")) {
            return Err(Refused::Origin);
        }
        match token.as_bytes().ct_eq(self.token.as_bytes()).into() {
            true => Ok(rest),
            false => Err(Refused::Token),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_guard() -> Guard {
        Guard::new("127.0.0.1:4000".parse().unwrap()).unwrap()
    }

    fn headers(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        pairs.iter().map(pair).collect()
    }

    #[test]
    fn the_right_token_opens_and_is_another_one_each_time() {
        let (guard, other) = (new_guard(), new_guard());
        let host = headers(&[("host", "127.0.0.1:4000")]);
        let path = guard.url().replace("http://127.0.0.1:4000", "");
        assert_eq!(path.len(), 2 + 2 * TOKEN_BYTES);
        assert_eq!(guard.check(&Method::GET, &host, &format!("{path}main.js")), Ok("main.js"));
        for path in ["/", "", "/stream", "/0123/", &format!("{}x", path.trim_end_matches('/')), &path[1..]] {
            assert_eq!(guard.check(&Method::GET, &host, path), Err(Refused::Token), "{path}");
        }
        assert_eq!(other.check(&Method::GET, &host, &path), Err(Refused::Token));
    }

    #[test]
    fn other_names_of_the_host_and_other_pages_are_refused() {
        let guard = new_guard();
        let path = guard.url().replace("http://127.0.0.1:4000", "");
        let check =
            |pairs: &[(&'static str, &'static str)]| guard.check(&Method::GET, &headers(pairs), &path);
        let host = ("host", "127.0.0.1:4000");
        assert_eq!(check(&[("host", "localhost:4000")]), Ok(""));
        for pairs in [&[][..], &[("host", "evil.example:4000")], &[("host", "127.0.0.1:4001")], &[host, host]]
        {
            assert_eq!(check(pairs), Err(Refused::Host), "{pairs:?}");
        }
        assert_eq!(
            check(&[host, ("origin", "http://127.0.0.1:4000"), ("sec-fetch-site", "same-origin")]),
            Ok("")
        );
        for origin in ["http://127.0.0.1:4001", "https://127.0.0.1:4000", "null", "http://evil.example"] {
            assert_eq!(check(&[host, ("origin", origin)]), Err(Refused::Origin), "{origin}");
        }
        for site in ["cross-site", "same-site"] {
            assert_eq!(check(&[host, ("sec-fetch-site", site)]), Err(Refused::Origin), "{site}");
        }
        let opened = [host, ("sec-fetch-site", "cross-site"), ("sec-fetch-dest", "document")];
        assert_eq!(check(&opened), Ok(""), "a link with the token opens the page");
        for method in [Method::POST, Method::OPTIONS, Method::HEAD] {
            assert_eq!(guard.check(&method, &headers(&[host]), &path), Err(Refused::Method), "{method}");
        }
    }

    #[test]
    fn no_script_runs_but_the_servers_own() {
        let [(_, policy), ..] = HEADERS;
        let policy = policy.to_str().unwrap();
        assert!(policy.contains("default-src 'none'") && policy.contains("script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
    }
}
