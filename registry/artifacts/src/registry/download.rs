//! Reads that begin in the middle, for whoever goes on after a break.

use super::error::{RegistryError, printable};
use super::http::Content;
use super::login::Scope;
use super::{Answer, Ask, Registry, blob_path};
use ::http::header::{CONTENT_RANGE, HeaderName, HeaderValue, RANGE};
use ::http::{Method, StatusCode};
use bytes::Bytes;
use fpga_core::bitstream::Digest;

/// Bytes that come from a registry. Nobody has compared their digest yet.
pub struct Download {
    content: Content,
    from: u64,
}

impl Registry {
    /// Begins to read a blob of `bytes` bytes, without the first `from` ones where the registry can leave them out.
    ///
    /// # Errors
    /// The registry does not have the blob, does not answer, or has another number of bytes.
    pub async fn open_blob(
        &self,
        repository: &str,
        digest: Digest,
        bytes: u64,
        from: u64,
    ) -> Result<Download, RegistryError> {
        let what = format!("{}/{repository}@{digest}", self.name);
        let mut get = Ask::new(Method::GET, self.http.uri(&blob_path(repository, digest))?);
        get.headers.extend(range(from));
        let answer = self.ask(&Scope::pull(repository), get).await?;
        self.download(answer, &what, bytes, from).await
    }

    /// Begins to read what `path` of the host answers, which has `bytes` bytes, as [`Self::open_blob`]. Nobody logs in.
    ///
    /// # Errors
    /// The host does not have it, does not answer, or has another number of bytes.
    pub async fn open_path(&self, path: &str, bytes: u64, from: u64) -> Result<Download, RegistryError> {
        let what = format!("{}{path}", self.name);
        let mut get = Ask::new(Method::GET, self.http.uri(path)?);
        get.headers.extend(range(from));
        let answer = self.http.follow(get).await?;
        self.download(answer, &what, bytes, from).await
    }

    async fn download(
        &self,
        answer: Answer,
        what: &str,
        bytes: u64,
        from: u64,
    ) -> Result<Download, RegistryError> {
        let from = match answer.response.status() {
            // Without ranges the answer begins at the beginning.
            StatusCode::OK => 0,
            StatusCode::PARTIAL_CONTENT => {
                let told = answer.response.headers().get(CONTENT_RANGE).and_then(|range| range.to_str().ok());
                let told = told.unwrap_or_default();
                // Nothing else of the answer counts: the length is bounded, and the digest decides.
                let last = bytes.saturating_sub(1);
                if told != format!("bytes {from}-{last}/{bytes}") {
                    let (registry, range) = (self.name.clone(), printable(told));
                    return Err(RegistryError::Range { what: what.to_owned(), registry, range });
                }
                from
            }
            StatusCode::NOT_FOUND => return Err(RegistryError::Missing(what.to_owned())),
            _ => return Err(self.refusal(answer, &format!("reading {what}")).await),
        };
        Ok(Download { content: self.http.body(answer.response, bytes.saturating_sub(from), what), from })
    }
}

impl Download {
    /// Number of bytes that are left out.
    #[must_use]
    pub fn from(&self) -> u64 {
        self.from
    }

    /// The next bytes; `None` at the end. No more bytes come than were asked for.
    ///
    /// # Errors
    /// The registry falls silent, is too slow, sends too much, or ends too early.
    pub async fn next(&mut self) -> Result<Option<Bytes>, RegistryError> {
        let bytes = self.content.next().await?;
        if bytes.is_none() {
            self.content.check_length()?;
        }
        Ok(bytes)
    }
}

/// The header `Range` for what follows the first `from` bytes; none for all bytes.
fn range(from: u64) -> Option<(HeaderName, HeaderValue)> {
    let range = HeaderValue::from_str(&format!("bytes={from}-")).ok()?;
    (from > 0).then_some((RANGE, range))
}
