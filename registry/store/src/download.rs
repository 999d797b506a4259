//! One download: tries that go on from what has come, until all bytes are there and have the digest.

use crate::contents::Full;
use crate::options::StoreOptions;
use crate::retry::{Failure, Next, Read, Tries};
use crate::source::{Owner, Source, Wanted};
use fpga_artifacts::{
    Credentials, CredentialsError, Download, Hasher, PlainHttp, Registry, RegistryError, RegistryOptions,
};
use fpga_core::bitstream::Digest;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::fs::OpenOptions;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::watch;
use tracing::info;

/// Why a try failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FetchError {
    /// The source does not give the bytes.
    #[error("{}", told(.0))]
    Source(Box<RegistryError>),
    /// The file with users and passwords can't be read.
    #[error("the pull Secret: {0}")]
    Credentials(#[from] CredentialsError),
    /// All bytes came and are others.
    #[error("the source has other bytes: their digest is {found}")]
    OtherBytes {
        /// The digest of what came.
        found: Digest,
        /// How it was read.
        read: Read,
    },
    /// The disk does not take or give the bytes.
    #[error("the node's disk: {0}")]
    Disk(#[from] io::Error),
    /// There is no room.
    #[error(transparent)]
    Full(#[from] Full),
    /// Nobody wants the bytes any more.
    #[error("no pod of this node wants it any more")]
    Cancelled,
}

impl From<RegistryError> for FetchError {
    fn from(error: RegistryError) -> Self {
        Self::Source(Box::new(error))
    }
}

/// What a download counts while it runs.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Bytes of the file that are there.
    pub(crate) there: AtomicU64,
    /// Bytes that came in this download.
    pub(crate) came: AtomicU64,
}

/// Ends when nobody wants a download any more.
#[derive(Debug)]
pub(crate) struct Cancellation(pub(crate) watch::Receiver<bool>);

impl Cancellation {
    /// The result of `work`, unless nobody wants it before.
    pub(crate) async fn or<T, E>(&mut self, work: impl Future<Output = Result<T, E>>) -> Result<T, FetchError>
    where
        FetchError: From<E>,
    {
        tokio::select! {
            result = work => Ok(result?),
            // The sender is there as long as the download.
            _ = self.0.wait_for(|cancelled| *cancelled) => Err(FetchError::Cancelled),
        }
    }
}

/// Whether a failed download leaves its partial file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Partial {
    Kept,
    Removed,
}

/// Fetches the bytes into `partial`, where earlier ones may be.
pub(crate) async fn run(
    options: &StoreOptions,
    wanted: &Wanted,
    partial: &Path,
    progress: &Progress,
    cancellation: &mut Cancellation,
) -> Result<(), (FetchError, Partial)> {
    let mut tries = Tries::default();
    loop {
        let before = progress.came.load(Ordering::Relaxed);
        let tried = attempt(options, wanted, partial, progress, cancellation).await;
        let error = match tried {
            Ok(()) => return Ok(()),
            Err(FetchError::Cancelled) => return Err((FetchError::Cancelled, Partial::Kept)),
            Err(error) => error,
        };
        let new_bytes = progress.came.load(Ordering::Relaxed) - before;
        match tries.after(failure(&error), new_bytes) {
            Next::Resume(pause) => {
                info!(%error, digest = %wanted.digest, ?pause, "A download broke and goes on");
                let pause = async {
                    tokio::time::sleep(pause).await;
                    Ok::<_, FetchError>(())
                };
                cancellation.or(pause).await.map_err(|error| (error, Partial::Kept))?;
            }
            Next::Restart => {
                info!(%error, digest = %wanted.digest, "A download begins anew");
                std::fs::remove_file(partial).map_err(|error| (error.into(), Partial::Removed))?;
            }
            Next::Pause => return Err((error, Partial::Kept)),
            Next::End => {
                let _ = std::fs::remove_file(partial);
                return Err((error, Partial::Removed));
            }
        }
    }
}

async fn attempt(
    options: &StoreOptions,
    wanted: &Wanted,
    partial: &Path,
    progress: &Progress,
    cancellation: &mut Cancellation,
) -> Result<(), FetchError> {
    let mut file = OpenOptions::new().append(true).create(true).open(partial).await?;
    // The process's umask counts for a new file. Containers read it as whoever they are.
    file.set_permissions(std::fs::Permissions::from_mode(0o644)).await?;
    let (mut hasher, mut there) = hash(partial).await?;
    if there > wanted.bytes {
        file.set_len(0).await?;
        (hasher, there) = (Hasher::default(), 0);
    }
    progress.there.store(there, Ordering::Relaxed);
    let mut read = if there > 0 { Read::InParts } else { Read::AtOnce };
    if there < wanted.bytes {
        let mut download = cancellation.or(open(options, wanted, there)).await?;
        if download.from() == 0 && there > 0 {
            file.set_len(0).await?;
            (hasher, there, read) = (Hasher::default(), 0, Read::AtOnce);
        }
        loop {
            let bytes = cancellation.or(download.next()).await;
            if !matches!(bytes, Ok(Some(_))) {
                // What came is in the file, for the next try as well.
                file.flush().await?;
            }
            let Some(bytes) = bytes? else { break };
            hasher.update(&bytes);
            file.write_all(&bytes).await?;
            there += bytes.len() as u64;
            progress.there.store(there, Ordering::Relaxed);
            progress.came.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        }
    }
    file.sync_data().await?;
    match hasher.finish() {
        found if found == wanted.digest => Ok(()),
        found => Err(FetchError::OtherBytes { found, read }),
    }
}

/// Begins to read what follows the first `from` bytes.
async fn open(options: &StoreOptions, wanted: &Wanted, from: u64) -> Result<Download, FetchError> {
    let host = wanted.source.host();
    let of_host = |plain_http, credentials| RegistryOptions {
        plain_http,
        ca: options.ca.clone(),
        credentials,
        hosts: options.hosts.clone(),
        timeout: options.timeout,
    };
    match &wanted.source {
        Source::Oci { registry, repository } => {
            let credentials = match (&options.credentials, &wanted.owner) {
                (Some(path), Owner::Library) => {
                    Credentials::of_pull_secret(path, &format!("{registry}/{repository}"))?
                }
                (None, _) | (_, Owner::Own { .. }) => Vec::new(),
            };
            let registry = Registry::new(host, of_host(options.hosts.plain_http(host), credentials))?;
            Ok(registry.open_blob(repository, wanted.digest, wanted.bytes, from).await?)
        }
        Source::Https { path, .. } => {
            let host = Registry::new(host, of_host(PlainHttp::No, Vec::new()))?;
            Ok(host.open_path(path, wanted.bytes, from).await?)
        }
    }
}

/// The hash of what is in the file so far, and its length.
async fn hash(partial: &Path) -> io::Result<(Hasher, u64)> {
    let partial = partial.to_owned();
    let hash = move || {
        let (mut file, mut hasher, mut length) = (File::open(partial)?, Hasher::default(), 0);
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok((hasher, length));
            }
            hasher.update(&buffer[..read]);
            length += read as u64;
        }
    };
    tokio::task::spawn_blocking(hash).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn failure(error: &FetchError) -> Failure {
    match error {
        FetchError::Source(error) => match &**error {
            RegistryError::Unreachable { .. } | RegistryError::TooShort { .. } => Failure::Passing,
            RegistryError::Silent { .. } => Failure::Slow,
            RegistryError::Refused { status, .. } if status.is_server_error() || status.as_u16() == 429 => {
                Failure::Passing
            }
            _ => Failure::Final,
        },
        FetchError::OtherBytes { read, .. } => Failure::OtherBytes(*read),
        FetchError::Credentials(_) | FetchError::Disk(_) | FetchError::Full(_) | FetchError::Cancelled => {
            Failure::Final
        }
    }
}

/// The error as it stands on a pod, where nobody has the flags of a command line.
fn told(error: &RegistryError) -> String {
    match error {
        RegistryError::Unreachable { registry, error } => format!("{registry} can't be reached: {error}"),
        RegistryError::Silent { registry, time } => {
            format!("{registry} sends nothing, or too slowly, for {} s", time.as_secs_f64())
        }
        RegistryError::Unauthorized(registry) => {
            format!(
                "{registry} wants a login. The pull Secret has none that it takes, or the Bitstream is not the library's: \
                 the pull Secret serves the library alone"
            )
        }
        RegistryError::Missing(what) => format!("{what} is not there"),
        RegistryError::Forbidden { place, reason } => {
            format!("{place} is not asked: {reason}; an administrator lists hosts by --bitstream-hosts")
        }
        RegistryError::Elsewhere { registry, place } => {
            format!(
                "{registry} sends to {place:?}, which is not followed; an administrator lists hosts without TLS as http://HOST:PORT in --bitstream-hosts"
            )
        }
        other => other.to_string(),
    }
}
