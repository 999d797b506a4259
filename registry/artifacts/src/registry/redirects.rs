//! Redirects, of reads and of uploads: as Go's net/http follows them, by which Docker's and ORAS' clients ask.

use super::address::{host, is_same_origin, resolve};
use super::error::{RegistryError, printable};
use super::http::{self, Body, Http};
use ::http::header::{AUTHORIZATION, LOCATION};
use ::http::uri::{Authority, Scheme};
use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use bytes::Bytes;
use hyper::body::Incoming;
use std::path::Path;

/// Number of redirects that are followed.
const MAX_REDIRECTS: usize = 10;

/// A request that can be made again.
#[derive(Clone)]
pub struct Ask<'a> {
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub sent: Sent<'a>,
}

/// What a request sends.
#[derive(Clone)]
pub enum Sent<'a> {
    Nothing,
    Bytes(Bytes),
    /// A file of this number of bytes.
    File(&'a Path, u64),
}

/// An answer, and the address that gave it.
pub struct Answer {
    pub response: Response<Incoming>,
    pub uri: Uri,
}

impl Ask<'_> {
    /// A request without headers that sends nothing.
    pub fn new(method: Method, uri: Uri) -> Self {
        Self { method, uri, headers: HeaderMap::new(), sent: Sent::Nothing }
    }

    /// The request, once.
    pub async fn make(&self) -> Result<Request<Body>, RegistryError> {
        let content = match &self.sent {
            Sent::Nothing => http::empty(),
            Sent::Bytes(bytes) => http::full(bytes.clone()),
            Sent::File(path, _) => http::file(path).await?,
        };
        let mut request = Request::builder().method(self.method.clone()).uri(self.uri.clone());
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&self.headers);
        }
        http::request(request, content)
    }

    /// Where an answer sends this request. By 301 to 303 only reads are sent: Go's client makes a read of all others.
    fn next<'r>(&self, response: &'r Response<Incoming>) -> Option<&'r str> {
        let is_read = matches!(self.method, Method::GET | Method::HEAD);
        let is_followed = match response.status() {
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER => is_read,
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => true,
            _ => false,
        };
        location(response).filter(|_| is_followed)
    }
}

impl Sent<'_> {
    fn bytes(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(_, bytes) => *bytes,
        }
    }
}

impl Http {
    /// The answer to a request, wherever it is sent. The login is for the host that is asked first and for no other.
    ///
    /// # Errors
    /// A host does not answer, may not be asked, or there are more than [`MAX_REDIRECTS`] redirects.
    pub async fn follow(&self, mut ask: Ask<'_>) -> Result<Answer, RegistryError> {
        for _ in 0..=MAX_REDIRECTS {
            let response = self.send(ask.make().await?, ask.sent.bytes()).await?;
            let Some(location) = ask.next(&response) else {
                return Ok(Answer { response, uri: ask.uri });
            };
            let next = self.place(&ask.uri, location)?;
            if !is_same_origin(&ask.uri, &next) {
                ask.headers.remove(AUTHORIZATION);
            }
            ask.uri = next;
        }
        Err(RegistryError::Redirects { place: host(&ask.uri), limit: MAX_REDIRECTS })
    }

    /// The place that an answer from `base` names. TLS is left only for hosts that the user wants to ask without TLS.
    ///
    /// # Errors
    /// The place is no address, or is not asked.
    pub fn place(&self, base: &Uri, location: &str) -> Result<Uri, RegistryError> {
        let may_be_asked = |uri: &Uri| {
            let Some(authority) = uri.authority().map(Authority::as_str) else { return false };
            let may_be_plain = || {
                base.scheme() == Some(&Scheme::HTTP) || self.is_own(uri) || self.is_listed_without_tls(uri)
            };
            let is_protected = uri.scheme() == Some(&Scheme::HTTPS);
            let is_plain = uri.scheme() == Some(&Scheme::HTTP);
            !authority.contains('@') && (is_protected || is_plain && may_be_plain())
        };
        resolve(base, location)
            .filter(may_be_asked)
            .ok_or_else(|| RegistryError::Elsewhere { registry: host(base), place: printable(location) })
    }
}

/// The header `Location`, if it is not empty.
pub fn location(response: &Response<Incoming>) -> Option<&str> {
    response.headers().get(LOCATION)?.to_str().ok().filter(|place| !place.is_empty())
}

#[cfg(test)]
mod tests {
    use super::super::{Hosts, PlainHttp, RegistryOptions};
    use super::*;
    use std::time::Duration;

    #[test]
    fn tls_is_left_only_for_hosts_that_the_user_asks_without_tls() {
        let listed = Hosts::Listed(vec!["http://plain.example:5000".parse().unwrap()]);
        for (hosts, plain_http, base, place, may) in [
            (Hosts::Any, PlainHttp::No, "https://r.example/", "https://other.example/", true),
            (Hosts::Any, PlainHttp::No, "https://r.example/", "HTTPS://other.example/", true),
            (Hosts::Any, PlainHttp::No, "https://r.example/", "http://other.example/", false),
            (Hosts::Any, PlainHttp::No, "https://r.example/", "http://r.example/", false),
            (Hosts::Public, PlainHttp::No, "https://r.example/", "http://r.example/", false),
            (Hosts::Any, PlainHttp::Yes, "http://r.example/", "http://other.example/", true),
            (Hosts::Any, PlainHttp::Yes, "http://r.example/", "https://other.example/", true),
            (Hosts::Any, PlainHttp::Yes, "https://other.example/", "http://third.example/", false),
            (Hosts::Any, PlainHttp::Yes, "https://other.example/", "http://R.example:80/", true),
            (listed.clone(), PlainHttp::No, "https://r.example/", "http://plain.example:5000/", true),
            (listed, PlainHttp::No, "https://r.example/", "http://plain.example/", false),
        ] {
            let timeout = Duration::from_secs(1);
            let options = RegistryOptions { plain_http, ca: None, credentials: Vec::new(), hosts, timeout };
            let http = Http::new("r.example", &options).unwrap();
            assert_eq!(http.place(&base.parse().unwrap(), place).is_ok(), may, "{base} to {place}");
        }
    }
}
