//! A registry, by the OCI distribution specification 1.1.

mod address;
mod connector;
mod download;
mod error;
mod hosts;
mod http;
mod login;
mod redirects;
mod tls;

pub use download::Download;
pub use error::RegistryError;
pub use hosts::{Host, Hosts, InvalidHost, PlainHttp};

use crate::credentials::Credentials;
use crate::manifest::{Descriptor, MANIFEST_TYPE, MAX_MANIFEST_BYTES, Manifest, Packed};
use crate::reference::{self, Reference, Target};
use crate::sha256::{Hasher, of_bytes};
use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use ::http::{Method, StatusCode, Uri};
use bytes::Bytes;
use fpga_core::bitstream::Digest;
use http::Http;
use login::{Challenge, Login, Scope};
use redirects::{Answer, Ask, Sent};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

/// Kinds of manifests that are asked for: ours, and indexes, so that the error can name what is there instead.
const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json";

/// How a registry is reached.
#[derive(Debug, Clone)]
pub struct RegistryOptions {
    /// Whether it is asked without TLS.
    pub plain_http: PlainHttp,
    /// Certificate authorities (PEM) instead of the system's.
    pub ca: Option<PathBuf>,
    /// What the registry is shown if it asks for a login, in this order, until something is taken.
    pub credentials: Vec<Credentials>,
    /// Which hosts are asked.
    pub hosts: Hosts,
    /// Longest time for an answer, and for content that comes with less than [`http::MIN_BYTES_PER_SECOND`].
    pub timeout: Duration,
}

/// A registry.
pub struct Registry {
    name: String,
    http: Http,
    login: Login,
}

impl Registry {
    /// The registry `name`, a host with or without a port. Nothing is sent yet.
    ///
    /// # Errors
    /// The certificate authorities can't be read.
    pub fn new(name: &str, options: RegistryOptions) -> Result<Self, RegistryError> {
        let http = Http::new(reference::host(name), &options)?;
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
        let answer = self.get(&path, &scope, &what).await?;
        let manifest_bytes = self.http.read(answer.response, MAX_MANIFEST_BYTES, &what).await?;
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
        let answer =
            self.get(&blob_path(repository, descriptor.digest), &Scope::pull(repository), &what).await?;
        let mut body = self.http.body(answer.response, descriptor.size, &what);
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
        self.push_blob(repository, descriptor, Sent::Bytes(Bytes::copy_from_slice(bytes))).await
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
        self.push_blob(repository, descriptor, Sent::File(file, descriptor.size)).await
    }

    /// Sends the manifest, which makes the artifact exist. All its blobs must be there.
    ///
    /// # Errors
    /// The registry does not answer or refuses the manifest.
    pub async fn push_manifest(&self, reference: &Reference, packed: &Packed) -> Result<(), RegistryError> {
        let mut put = Ask::new(Method::PUT, self.http.uri(&manifest_path(reference))?);
        put.headers.insert(CONTENT_TYPE, HeaderValue::from_static(MANIFEST_TYPE));
        put.sent = Sent::Bytes(Bytes::copy_from_slice(&packed.manifest_bytes));
        let answer = self.ask(&Scope::push(&reference.repository), put).await?;
        let digest = answer.response.headers().get("docker-content-digest").cloned();
        self.expect(answer, StatusCode::CREATED, &format!("sending the manifest of {reference}")).await?;
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
        sent: Sent<'_>,
    ) -> Result<(), RegistryError> {
        let (scope, digest) = (Scope::push(repository), descriptor.digest);
        let doing = format!("sending {}/{repository}@{digest}", self.name);
        let head = Ask::new(Method::HEAD, self.http.uri(&blob_path(repository, digest))?);
        let answer = self.ask(&scope, head).await?;
        match answer.response.status() {
            StatusCode::OK => return Ok(()),
            StatusCode::NOT_FOUND => {}
            _ => return Err(self.refusal(answer, &doing).await),
        }
        let uri = self.http.uri(&format!("/v2/{repository}/blobs/uploads/"))?;
        let mut begin = Ask::new(Method::POST, uri);
        begin.headers.insert(CONTENT_LENGTH, HeaderValue::from(0));
        let answer = self.ask(&scope, begin).await?;
        if answer.response.status() != StatusCode::ACCEPTED {
            return Err(self.refusal(answer, &doing).await);
        }
        let Some(location) = redirects::location(&answer.response) else {
            let (registry, message) = (address::host(&answer.uri), "the answer has no Location".to_owned());
            return Err(RegistryError::Refused { registry, doing, status: StatusCode::ACCEPTED, message });
        };
        let place = self.http.place(&answer.uri, location)?;
        let mut put = Ask::new(Method::PUT, with_digest(place, digest)?);
        put.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
        put.headers.insert(CONTENT_LENGTH, HeaderValue::from(descriptor.size));
        put.sent = sent;
        let answer = self.ask(&scope, put).await?;
        self.expect(answer, StatusCode::CREATED, &doing).await
    }

    /// The answer to a GET.
    async fn get(&self, path: &str, scope: &Scope, what: &str) -> Result<Answer, RegistryError> {
        let mut get = Ask::new(Method::GET, self.http.uri(path)?);
        get.headers.insert(ACCEPT, HeaderValue::from_static(ACCEPTED));
        let answer = self.ask(scope, get).await?;
        match answer.response.status() {
            StatusCode::OK => Ok(answer),
            StatusCode::NOT_FOUND => Err(RegistryError::Missing(what.to_owned())),
            _ => Err(self.refusal(answer, &format!("reading {what}")).await),
        }
    }

    /// The answer to a request, once more with a login if the registry asks for one. Other hosts get no login.
    async fn ask(&self, scope: &Scope, mut ask: Ask<'_>) -> Result<Answer, RegistryError> {
        if !self.http.is_own(&ask.uri) {
            return self.http.follow(ask).await;
        }
        self.login.sign(scope, &mut ask.headers).await;
        let answer = self.http.follow(ask.clone()).await?;
        if answer.response.status() != StatusCode::UNAUTHORIZED || !self.http.is_own(&answer.uri) {
            return Ok(answer);
        }
        let challenge = Challenge::new(&self.http, &self.name, scope, &answer)?;
        let mut refused = Err(RegistryError::Unauthorized(self.name.clone()));
        for way in self.login.ways() {
            let header = match self.login.header(&self.http, &challenge, way).await {
                Err(RegistryError::Unauthorized(_)) => continue,
                header => header?,
            };
            ask.headers.insert(AUTHORIZATION, header.clone());
            let answer = self.http.follow(ask.clone()).await?;
            match answer.response.status() {
                StatusCode::UNAUTHORIZED if self.http.is_own(&answer.uri) => {}
                // Another user may have the right.
                StatusCode::FORBIDDEN if self.http.is_own(&answer.uri) => refused = Ok(answer),
                _ => {
                    self.login.keep(scope, header).await;
                    return Ok(answer);
                }
            }
        }
        refused
    }

    async fn expect(&self, answer: Answer, status: StatusCode, doing: &str) -> Result<(), RegistryError> {
        if answer.response.status() == status { Ok(()) } else { Err(self.refusal(answer, doing).await) }
    }

    async fn refusal(&self, answer: Answer, doing: &str) -> RegistryError {
        let Answer { response, uri } = answer;
        let (registry, doing, status) = (address::host(&uri), doing.to_owned(), response.status());
        let message = match redirects::location(&response) {
            Some(place) if status.is_redirection() => format!("it sends to {:?}", error::printable(place)),
            _ => self.http.message(response).await,
        };
        RegistryError::Refused { registry, doing, status, message }
    }
}

/// The place of an upload with the digest of the bytes. The rest of its query stays.
fn with_digest(place: Uri, digest: Digest) -> Result<Uri, RegistryError> {
    let digest = format!("digest={digest}");
    let parameters = place.query().unwrap_or_default().split('&');
    let parameters =
        parameters.filter(|parameter| !parameter.is_empty() && !parameter.starts_with("digest="));
    let query = parameters.chain([digest.as_str()]).collect::<Vec<_>>().join("&");
    let path_and_query = format!("{}?{query}", place.path());
    let mut parts = place.into_parts();
    parts.path_and_query = Some(path_and_query.parse().map_err(::http::Error::from)?);
    Ok(Uri::from_parts(parts).map_err(::http::Error::from)?)
}

fn manifest_path(reference: &Reference) -> String {
    format!("/v2/{}/manifests/{}", reference.repository, reference.target)
}

fn blob_path(repository: &str, digest: Digest) -> String {
    format!("/v2/{repository}/blobs/{digest}")
}
