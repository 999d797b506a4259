//! HTTP with bounds on times and lengths, one request at a time.

use super::address::{host, is_same_origin};
use super::connector::Connector;
use super::error::{RegistryError, chain, printable};
use super::hosts::{Hosts, NOT_PUBLIC, PlainHttp};
use super::{RegistryOptions, tls};
use ::http::header::CONTENT_LENGTH;
use ::http::uri::{Authority, Scheme};
use ::http::{Request, Response, Uri, request};
use bytes::{Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::Deserialize;
use std::error::Error;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout, timeout_at};

/// Slowest rate at which content may come or go.
pub const MIN_BYTES_PER_SECOND: u64 = 64 * 1024;
/// Longest answer of a refusal that is read.
const MAX_REFUSAL_BYTES: u64 = 16 * 1024;
/// Bytes of a file that are read at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// What is sent.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;

/// A client for one registry.
pub struct Http {
    client: Client<HttpsConnector<Connector>, Body>,
    registry: String,
    plain_http: PlainHttp,
    hosts: Hosts,
    timeout: Duration,
}

/// The content of an answer, of which no more than a limit is taken. It must come with [`MIN_BYTES_PER_SECOND`] at least.
pub struct Content {
    body: Incoming,
    what: String,
    registry: String,
    limit: u64,
    found: u64,
    /// Length that the answer announces.
    announced: Option<u64>,
    /// Time in which the next [`Self::step`] must come.
    time: Duration,
    deadline: Instant,
    /// Number of bytes for which there is [`Self::time`].
    step: u64,
    /// Number of bytes after which the deadline is set anew.
    step_end: u64,
}

impl Http {
    /// A client for `registry`.
    pub fn new(registry: &str, options: &RegistryOptions) -> Result<Self, RegistryError> {
        let RegistryOptions { plain_http, ref ca, ref hosts, timeout, credentials: _ } = *options;
        let tls = Arc::new(tls::config(ca.as_deref(), plain_http)?);
        let connector = Connector::new(hosts, Arc::clone(&tls), timeout);
        // Where http may be asked is judged before a request is made.
        let client = Client::builder(TokioExecutor::new()).build(HttpsConnector::from((connector, tls)));
        Ok(Self { client, registry: registry.to_owned(), plain_http, hosts: hosts.clone(), timeout })
    }

    /// The address of a path at the registry.
    pub fn uri(&self, path: &str) -> Result<Uri, RegistryError> {
        let parts =
            Uri::builder().scheme(self.scheme()).authority(self.registry.as_str()).path_and_query(path);
        Ok(parts.build()?)
    }

    /// Whether the address is at the registry itself.
    pub fn is_own(&self, uri: &Uri) -> bool {
        self.uri("/").is_ok_and(|own| is_same_origin(&own, uri))
    }

    /// Whether the address is at a host that is listed as one without TLS.
    pub fn is_listed_without_tls(&self, uri: &Uri) -> bool {
        let authority = uri.authority().map(Authority::as_str);
        authority.is_some_and(|authority| self.hosts.plain_http(authority) == PlainHttp::Yes)
    }

    /// The answer to a request with `content` bytes.
    pub async fn send(
        &self,
        request: Request<Body>,
        content: u64,
    ) -> Result<Response<Incoming>, RegistryError> {
        self.hosts.check(request.uri())?;
        let host = host(request.uri());
        let time = self.time_for(content);
        match timeout(time, self.client.request(request)).await {
            Err(_) => Err(RegistryError::Silent { registry: host, time }),
            Ok(Err(error)) if is_not_public(&error) => {
                Err(RegistryError::Forbidden { place: host, reason: NOT_PUBLIC })
            }
            Ok(Err(error)) => Err(RegistryError::Unreachable { registry: host, error: chain(&error) }),
            Ok(Ok(response)) => Ok(response),
        }
    }

    /// The content of an answer that has at most `limit` bytes. An announced length beyond it is an error at once.
    pub fn body(&self, response: Response<Incoming>, limit: u64, what: &str) -> Content {
        let announced = response.headers().get(CONTENT_LENGTH);
        let announced = announced.and_then(|value| value.to_str().ok()?.parse().ok());
        let step = self.timeout.as_secs().max(1) * MIN_BYTES_PER_SECOND;
        Content {
            body: response.into_body(),
            what: what.to_owned(),
            registry: self.registry.clone(),
            limit,
            found: 0,
            announced,
            time: self.timeout,
            deadline: Instant::now() + self.timeout,
            step,
            step_end: step,
        }
    }

    /// All bytes of an answer that has at most `limit`.
    pub async fn read(
        &self,
        response: Response<Incoming>,
        limit: u64,
        what: &str,
    ) -> Result<Vec<u8>, RegistryError> {
        let mut content = self.body(response, limit, what);
        let mut all = Vec::new();
        while let Some(bytes) = content.next().await? {
            all.extend_from_slice(&bytes);
        }
        Ok(all)
    }

    /// What a registry says of a refusal.
    pub async fn message(&self, response: Response<Incoming>) -> String {
        #[derive(Deserialize)]
        struct Errors {
            errors: Vec<Told>,
        }
        #[derive(Deserialize)]
        struct Told {
            code: String,
            #[serde(default)]
            message: String,
        }
        let Ok(bytes) = self.read(response, MAX_REFUSAL_BYTES, "the refusal").await else {
            return "no reason".to_owned();
        };
        let text = match serde_json::from_slice::<Errors>(&bytes) {
            Ok(Errors { errors }) => {
                let told: Vec<_> =
                    errors.iter().map(|told| format!("{} ({})", told.message, told.code)).collect();
                told.join(", ")
            }
            Err(_) => String::from_utf8_lossy(&bytes).into_owned(),
        };
        if text.is_empty() { "no reason".to_owned() } else { printable(&text) }
    }

    fn scheme(&self) -> Scheme {
        match self.plain_http {
            PlainHttp::Yes => Scheme::HTTP,
            PlainHttp::No => Scheme::HTTPS,
        }
    }

    fn time_for(&self, content: u64) -> Duration {
        self.timeout + Duration::from_secs(content / MIN_BYTES_PER_SECOND)
    }
}

impl Content {
    /// The next bytes; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        let too_long = || RegistryError::TooLong { what: self.what.clone(), limit: self.limit };
        if self.announced.is_some_and(|announced| announced > self.limit) {
            return Err(too_long());
        }
        loop {
            let Ok(frame) = timeout_at(self.deadline, self.body.frame()).await else {
                return Err(RegistryError::Silent { registry: self.registry.clone(), time: self.time });
            };
            let frame = match frame {
                None => return Ok(None),
                Some(Ok(frame)) => frame,
                Some(Err(error)) => {
                    let expected = self.announced.unwrap_or(self.limit);
                    return Err(self.too_short(expected, chain(&error)));
                }
            };
            // Trailers have no bytes of the content.
            let Ok(bytes) = frame.into_data() else { continue };
            self.found += bytes.len() as u64;
            if self.found >= self.step_end {
                self.step_end = self.found + self.step;
                self.deadline = Instant::now() + self.time;
            }
            return if self.found > self.limit { Err(too_long()) } else { Ok(Some(bytes)) };
        }
    }

    /// Checks after the end that all bytes up to the limit came.
    pub fn check_length(&self) -> Result<(), RegistryError> {
        if self.found == self.limit {
            Ok(())
        } else {
            Err(self.too_short(self.limit, "the answer is shorter".to_owned()))
        }
    }

    fn too_short(&self, expected: u64, reason: String) -> RegistryError {
        let (what, found) = (self.what.clone(), self.found);
        RegistryError::TooShort { what, expected, found, reason }
    }
}

/// Whether the resolver found private addresses only.
fn is_not_public(error: &(dyn Error + 'static)) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied && error.to_string() == NOT_PUBLIC)
        || error.source().is_some_and(is_not_public)
}

/// A request with a body.
pub fn request(builder: request::Builder, body: Body) -> Result<Request<Body>, RegistryError> {
    Ok(builder.header("user-agent", concat!("kube-fpga/", env!("CARGO_PKG_VERSION"))).body(body)?)
}

/// A body of no bytes.
pub fn empty() -> Body {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// A body of these bytes.
pub fn full(bytes: Bytes) -> Body {
    Full::new(bytes).map_err(|never| match never {}).boxed_unsync()
}

/// A body of a file, which is read as it is sent.
pub async fn file(path: &Path) -> Result<Body, RegistryError> {
    let read = |source| RegistryError::Read { path: path.display().to_string(), source };
    let file = tokio::fs::File::open(path).await.map_err(read)?;
    let chunks = futures::stream::try_unfold(file, async |mut file| {
        let mut chunk = BytesMut::with_capacity(CHUNK_BYTES);
        let is_end = file.read_buf(&mut chunk).await? == 0;
        Ok(if is_end { None } else { Some((Frame::data(chunk.freeze()), file)) })
    });
    Ok(StreamBody::new(chunks).boxed_unsync())
}
