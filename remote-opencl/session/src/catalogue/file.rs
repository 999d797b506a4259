//! One file `NAME.bitstream`: when it is read, and the result.

use crate::store::{BitstreamStore, StoreError};
use fpga_core::bitstream::{BitstreamId, Digest, InvalidBitstreamId};
use std::fs::{self, Metadata};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// When to read a file that is new or has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// As soon as it is found.
    AtOnce,
    /// When it is found a second time without change.
    Settled,
}

/// A file of the folder, as it was found last.
#[derive(Debug)]
pub(super) struct NamedFile {
    version: Version,
    /// Whether `content` belongs to `version`.
    is_read: bool,
    /// The content of the version that was read last.
    content: Option<Content>,
}

/// The metadata by which a changed file is recognised.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

#[derive(Debug)]
enum Content {
    Named { name: String, digest: Digest },
    Refused { reason: String },
}

/// The reason why a file cannot be used.
#[derive(Debug, thiserror::Error)]
enum FileError {
    #[error("cannot read it: {0}")]
    Read(#[from] io::Error),
    #[error("it is no regular file")]
    NoFile,
    #[error("{0}; name the file NAME.bitstream")]
    Name(#[from] InvalidBitstreamId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NamedFile {
    /// Looks at the file `path`, which was `known` before. Returns `None` if the file is gone.
    pub(super) fn look(path: &Path, known: Option<Self>, store: &BitstreamStore, when: When) -> Option<Self> {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => Ok(metadata),
            // Removed since the folder was listed.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => Err(error),
        };
        let version = metadata.as_ref().map(Version::of).unwrap_or_default();
        let (settled, is_read, content) = match known {
            Some(known) if known.version == version => (true, known.is_read, known.content),
            Some(known) => (false, false, known.content),
            None => (false, false, None),
        };
        if is_read || (when == When::Settled && !settled) {
            return Some(Self { version, is_read, content });
        }
        let read = metadata.map_err(FileError::Read).and_then(|metadata| read(path, &metadata, store));
        // A file that cannot be read may become readable without a change of its metadata.
        let is_read = !matches!(read, Err(FileError::Read(_)));
        let refused_for = match &content {
            Some(Content::Refused { reason }) => Some(reason.as_str()),
            _ => None,
        };
        let content = match read {
            Ok((name, digest)) => {
                tracing::info!(%name, %digest, "A bitstream has a name");
                Content::Named { name, digest }
            }
            Err(error) => {
                let reason = error.to_string();
                if refused_for != Some(&reason) {
                    tracing::warn!(file = %path.display(), reason, "A file can't be used as a bitstream");
                }
                Content::Refused { reason }
            }
        };
        Some(Self { version, is_read, content: Some(content) })
    }

    /// The bitstream and its name, if the file can be used.
    pub(super) fn named(&self) -> Option<(Digest, &str)> {
        match &self.content {
            Some(Content::Named { name, digest }) => Some((*digest, name)),
            _ => None,
        }
    }

    /// Whether the file cannot be used.
    pub(super) fn is_refused(&self) -> bool {
        matches!(self.content, Some(Content::Refused { .. }))
    }
}

impl Version {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            size: metadata.size(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Default for Version {
    /// The version of a file whose metadata is unknown.
    fn default() -> Self {
        Self { device: 0, inode: 0, size: 0, modified: (0, 0), changed: (0, 0) }
    }
}

fn read(path: &Path, metadata: &Metadata, store: &BitstreamStore) -> Result<(String, Digest), FileError> {
    if !metadata.is_file() {
        return Err(FileError::NoFile);
    }
    let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.parse::<BitstreamId>()?;
    // Checked before the bytes are read into memory.
    store.fits(metadata.size())?;
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(metadata.size() + 1).read_to_end(&mut bytes)?;
    Ok((name, store.insert(bytes.into())?))
}
