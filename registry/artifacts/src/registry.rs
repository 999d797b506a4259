//! A registry, by the OCI distribution specification 1.1.

mod download;
mod error;
mod hosts;
mod http;
mod login;

pub use download::Download;
pub use error::RegistryError;
pub use hosts::{Host, Hosts, InvalidHost, PlainHttp};

use crate::credentials::Credentials;
use crate::manifest::{Descriptor, MANIFEST_TYPE, MAX_MANIFEST_BYTES, Manifest, Packed};
use crate::reference::{Reference, Target};
use crate::sha256::{Hasher, of_bytes};
use ::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION, RANGE};
use ::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use bytes::Bytes;
use fpga_core::bitstream::Digest;
use http::{Body, Http};
use hyper::body::Incoming;
use login::{Login, Scope};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Times that a download may be sent elsewhere.
const MAX_REDIRECTS: usize = 3;
/// Kinds of manifests that are asked for: ours, and indexes, so that the error can name what is there instead.
const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json";

/// How a registry is reached.
#[derive(Debug, Clone)]
pub struct RegistryOptions {
    /// Whether it is asked without TLS.
    pub plain_http: PlainHttp,
    /// Certificate authorities (PEM) instead of the system's.
    pub ca: Option<PathBuf>,
    /// User and password, if the registry asks for them.
    pub credentials: Option<Credentials>,
    /// Which hosts are asked.
    pub hosts: Hosts,
    /// Longest time for an answer, and for content that comes with less than [`http::MIN_BYTES_PER_SECOND`].
    pub timeout: Duration,
}

/// A request that can be made again.
struct Ask<'a> {
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    content: Content<'a>,
}

/// What a request sends.
enum Content<'a> {
    Nothing,
    Bytes(Bytes),
    File(&'a Path),
}

/// A registry.
pub struct Registry {
    name: String,
    http: Http,
    login: Login,
}

impl Ask<'_> {
    /// A request without headers that sends nothing.
    fn new(method: Method, uri: Uri) -> Self {
        Self { method, uri, headers: HeaderMap::new(), content: Content::Nothing }
    }

    async fn make(&self) -> Result<Request<Body>, RegistryError> {
        let content = match &self.content {
            Content::Nothing => http::empty(),
            Content::Bytes(bytes) => http::full(bytes.clone()),
            Content::File(path) => http::file(path).await?,
        };
        let mut request = Request::builder().method(self.method.clone()).uri(self.uri.clone());
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&self.headers);
        }
        http::request(request, content)
    }
}

impl Registry {
    /// The registry `name`, a host with or without a port. Nothing is sent yet.
    ///
    /// # Errors
    /// The certificate authorities can't be read.
    pub fn new(name: &str, options: RegistryOptions) -> Result<Self, RegistryError> {
        let http = Http::new(name, &options)?;
        Ok(Self { name: name.to_owned(), http, login: Login::new(options.credentials) })
    }

    /// Reads manifest and configuration of an artifact. The bitstreams are not read.
    ///
    /// # Errors
    /// The registry does not have it or does not answer, or what it answers is no artifact of ours.
    pub async fn artifact(&self, reference: &Reference) -> Result<Packed, RegistryError> {
        let invalid = |source| RegistryError::Manifest { reference: reference.to_string(), source };
        let (path, scope) = (manifest_path(reference), Scope::pull(&reference.repository));
        let what = reference.to_string();
        let response = self.get(&path, &scope, &what).await?;
        let manifest_bytes = self.http.read(response, MAX_MANIFEST_BYTES, &what).await?;
        if let Target::Digest(expected) = reference.target {
            let found = of_bytes(&manifest_bytes);
            if found != expected {
                return Err(RegistryError::Digest { what, expected, found });
            }
        }
        let manifest = Manifest::parse(&manifest_bytes).map_err(invalid)?;
        let mut config_bytes = Vec::new();
        self.blob(&reference.repository, &manifest.config, &mut config_bytes).await?;
        let artifact = manifest.artifact(&config_bytes).map_err(invalid)?;
        Ok(Packed { manifest, manifest_bytes, config_bytes, artifact })
    }

    /// Reads a blob into `out`. No more bytes are taken than the descriptor says; `out` is to be thrown away on an error.
    ///
    /// # Errors
    /// The registry does not have it or does not answer, the bytes have another length or digest, or `out` takes no
    /// bytes.
    pub async fn blob<W: AsyncWrite + Unpin>(
        &self,
        repository: &str,
        descriptor: &Descriptor,
        out: &mut W,
    ) -> Result<(), RegistryError> {
        let what = format!("{}/{repository}@{}", self.name, descriptor.digest);
        let response =
            self.get(&blob_path(repository, descriptor.digest), &Scope::pull(repository), &what).await?;
        let mut body = self.http.body(response, descriptor.size, &what);
        let mut hasher = Hasher::default();
        while let Some(bytes) = body.next().await? {
            hasher.update(&bytes);
            out.write_all(&bytes).await.map_err(RegistryError::Write)?;
        }
        out.flush().await.map_err(RegistryError::Write)?;
        body.check_length()?;
        let found = hasher.finish();
        if found != descriptor.digest {
            return Err(RegistryError::Digest { what, expected: descriptor.digest, found });
        }
        Ok(())
    }

    /// Sends bytes as a blob, unless the registry has it.
    ///
    /// # Errors
    /// The registry does not answer or refuses the blob.
    pub async fn push_bytes(
        &self,
        repository: &str,
        descriptor: &Descriptor,
        bytes: &[u8],
    ) -> Result<(), RegistryError> {
        self.push_blob(repository, descriptor, Content::Bytes(Bytes::copy_from_slice(bytes))).await
    }

    /// Sends a file as a blob, unless the registry has it.
    ///
    /// # Errors
    /// The file can't be read, or the registry does not answer or refuses the blob.
    pub async fn push_file(
        &self,
        repository: &str,
        descriptor: &Descriptor,
        file: &Path,
    ) -> Result<(), RegistryError> {
        self.push_blob(repository, descriptor, Content::File(file)).await
    }

    /// Sends the manifest, which makes the artifact exist. All its blobs must be there.
    ///
    /// # Errors
    /// The registry does not answer or refuses the manifest.
    pub async fn push_manifest(&self, reference: &Reference, packed: &Packed) -> Result<(), RegistryError> {
        let mut put = Ask::new(Method::PUT, self.http.uri(&manifest_path(reference))?);
        put.headers.insert(CONTENT_TYPE, HeaderValue::from_static(MANIFEST_TYPE));
        put.content = Content::Bytes(Bytes::copy_from_slice(&packed.manifest_bytes));
        let response = self.ask(&Scope::push(&reference.repository), 0, &put).await?;
        let digest = response.headers().get("docker-content-digest").cloned();
        self.expect(response, StatusCode::CREATED, &format!("sending the manifest of {reference}")).await?;
        match digest.as_ref().and_then(|digest| digest.to_str().ok()?.parse().ok()) {
            Some(found) if found != packed.manifest.digest => {
                let (what, expected) = (reference.to_string(), packed.manifest.digest);
                Err(RegistryError::Digest { what, expected, found })
            }
            _ => Ok(()),
        }
    }

    async fn push_blob(
        &self,
        repository: &str,
        descriptor: &Descriptor,
        content: Content<'_>,
    ) -> Result<(), RegistryError> {
        let (scope, digest) = (Scope::push(repository), descriptor.digest);
        let doing = format!("sending {}/{repository}@{digest}", self.name);
        let head = Ask::new(Method::HEAD, self.http.uri(&blob_path(repository, digest))?);
        let response = self.ask(&scope, 0, &head).await?;
        match response.status() {
            StatusCode::OK => return Ok(()),
            StatusCode::NOT_FOUND => {}
            _ => return Err(self.refusal(response, &doing).await),
        }
        let uri = self.http.uri(&format!("/v2/{repository}/blobs/uploads/"))?;
        let mut begin = Ask::new(Method::POST, uri);
        begin.headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        let response = self.ask(&scope, 0, &begin).await?;
        let location = response.headers().get(LOCATION).cloned();
        self.expect(response, StatusCode::ACCEPTED, &doing).await?;
        let mut put = Ask::new(Method::PUT, self.upload(location.as_ref(), &digest.to_string())?);
        put.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        put.headers.insert(CONTENT_LENGTH, HeaderValue::from(descriptor.size));
        put.content = content;
        let response = self.ask(&scope, descriptor.size, &put).await?;
        self.expect(response, StatusCode::CREATED, &doing).await
    }

    /// Where an upload goes on, which must be at the registry itself: the bytes and the login are for nobody else.
    fn upload(&self, location: Option<&HeaderValue>, digest: &str) -> Result<Uri, RegistryError> {
        let place = location.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let elsewhere =
            || RegistryError::Elsewhere { registry: self.name.clone(), place: error::printable(place) };
        let separator = if place.contains('?') { '&' } else { '?' };
        let place = format!("{place}{separator}digest={digest}");
        let uri: Uri = place.parse().map_err(|_| elsewhere())?;
        if uri.host().is_none() && place.starts_with('/') {
            return self.http.uri(&place);
        }
        if self.http.is_own(&uri) { Ok(uri) } else { Err(elsewhere()) }
    }

    /// The answer to a GET. Where the registry says that the bytes are elsewhere, they are asked for there without a
    /// login.
    async fn get(&self, path: &str, scope: &Scope, what: &str) -> Result<Response<Incoming>, RegistryError> {
        let mut get = Ask::new(Method::GET, self.http.uri(path)?);
        get.headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        let response = self.ask(scope, 0, &get).await?;
        let response = self.follow(response, None).await?;
        match response.status() {
            StatusCode::OK => Ok(response),
            StatusCode::NOT_FOUND => Err(RegistryError::Missing(what.to_owned())),
            _ => Err(self.refusal(response, &format!("reading {what}")).await),
        }
    }

    /// The answer where the registry sends the reader, with this header `Range`.
    async fn follow(
        &self,
        mut response: Response<Incoming>,
        range: Option<&HeaderValue>,
    ) -> Result<Response<Incoming>, RegistryError> {
        for _ in 0..MAX_REDIRECTS {
            if !response.status().is_redirection() {
                break;
            }
            let place =
                response.headers().get(LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let elsewhere =
                || RegistryError::Elsewhere { registry: self.name.clone(), place: error::printable(place) };
            let uri: Uri = place.parse().map_err(|_| elsewhere())?;
            let uri = if uri.host().is_none() { self.http.uri(place)? } else { uri };
            if !self.http.may_ask(&uri) || !self.http.may_send_elsewhere() {
                return Err(elsewhere());
            }
            let mut request = Request::get(uri);
            if let Some(range) = range {
                request = request.header(RANGE, range);
            }
            response = self.http.send(http::request(request, http::empty())?, 0).await?;
        }
        Ok(response)
    }

    /// The answer to a request, once more with a login if the registry asks for one.
    async fn ask(
        &self,
        scope: &Scope,
        content: u64,
        request: &Ask<'_>,
    ) -> Result<Response<Incoming>, RegistryError> {
        let mut first = request.make().await?;
        self.login.sign(scope, &mut first).await;
        let response = self.http.send(first, content).await?;
        if response.status() != StatusCode::UNAUTHORIZED {
            return Ok(response);
        }
        self.login.renew(&self.http, &self.name, scope, response.headers()).await?;
        let mut second = request.make().await?;
        self.login.sign(scope, &mut second).await;
        let response = self.http.send(second, content).await?;
        match response.status() {
            StatusCode::UNAUTHORIZED => Err(RegistryError::Unauthorized(self.name.clone())),
            _ => Ok(response),
        }
    }

    async fn expect(
        &self,
        response: Response<Incoming>,
        status: StatusCode,
        doing: &str,
    ) -> Result<(), RegistryError> {
        if response.status() == status { Ok(()) } else { Err(self.refusal(response, doing).await) }
    }

    async fn refusal(&self, response: Response<Incoming>, doing: &str) -> RegistryError {
        let (registry, doing, status) = (self.name.clone(), doing.to_owned(), response.status());
        let message = self.http.message(response).await;
        RegistryError::Refused { registry, doing, status, message }
    }
}

fn manifest_path(reference: &Reference) -> String {
    format!("/v2/{}/manifests/{}", reference.repository, reference.target)
}

fn blob_path(repository: &str, digest: Digest) -> String {
    format!("/v2/{repository}/blobs/{digest}")
}
