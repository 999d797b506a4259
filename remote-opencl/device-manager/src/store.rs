//! The bitstreams that clients brought, by the digest of their bytes (B-8), with a limit on their size.
//!
//! In memory, and in a folder too where one is given, so that they outlive the process. What was used longest ago goes
//! first. Callers pass bytes of their own: nothing is hashed in memory that a client can still write to.

use bytes::Bytes;
use fpga_core::bitstream::Digest;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::warn;

/// How files that are being written are called.
const UNFINISHED: &str = ".unfinished-";

/// The bitstreams that the manager has.
#[derive(Debug)]
pub struct BitstreamStore {
    limit: u64,
    folder: Option<PathBuf>,
    held: Mutex<Held>,
}

#[derive(Debug, Default)]
struct Held {
    bitstreams: HashMap<Digest, Entry>,
    bytes: u64,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    size: u64,
    /// Nothing while they are in the folder only.
    bytes: Option<Bytes>,
    last_use: u64,
}

/// Why a bitstream was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// It is larger than everything that may be stored together.
    #[error("a bitstream of {size} bytes is larger than the store's limit of {limit} bytes (--store-limit)")]
    TooLarge {
        /// Its size in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// Its bytes are not those that were announced.
    #[error("the bytes have the digest {actual}, not {announced}")]
    OtherBytes {
        /// What was said.
        announced: Digest,
        /// What is.
        actual: Digest,
    },
    /// The folder can't be used.
    #[error("cannot use the bitstream store's folder {}: {source}", .folder.display())]
    Folder {
        /// Which.
        folder: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// The SHA-256 of `bytes`.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_bytes(Sha256::digest(bytes).into())
}

impl BitstreamStore {
    /// A store of at most `limit` bytes in memory.
    #[must_use]
    pub fn in_memory(limit: u64) -> Self {
        Self { limit, folder: None, held: Mutex::default() }
    }

    /// A store of at most `limit` bytes, kept in `folder` too; what lies there from before is in it.
    ///
    /// # Errors
    /// [`StoreError::Folder`] if it can't be made or read.
    pub fn in_folder(limit: u64, folder: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Folder { folder: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut held = Held::default();
        for file in fs::read_dir(folder).map_err(failed)? {
            let file = file.map_err(failed)?;
            let name = file.file_name();
            if name.to_string_lossy().starts_with(UNFINISHED) {
                // A manager ended while it wrote. Nobody else writes here: one that does loses a copy on disk.
                let _ = fs::remove_file(file.path());
                continue;
            }
            let Some(digest) = name.to_str().and_then(|name| format!("sha256:{name}").parse().ok()) else {
                continue;
            };
            let size = file.metadata().map_err(failed)?.len();
            held.add(digest, Entry { size, bytes: None, last_use: 0 });
        }
        let evicted = held.evict(limit);
        let store = Self { limit, folder: Some(folder.to_owned()), held: Mutex::new(held) };
        store.delete_files(&evicted);
        Ok(store)
    }

    /// Whether the bytes of `digest` are here, and intact. Counts as a use.
    #[must_use]
    pub fn contains(&self, digest: &Digest) -> bool {
        self.get(digest).is_some()
    }

    /// The bytes of `digest`. Counts as a use.
    #[must_use]
    pub fn get(&self, digest: &Digest) -> Option<Bytes> {
        let size = {
            let mut held = self.lock();
            let entry = held.touch(digest)?;
            match &entry.bytes {
                Some(bytes) => return Some(bytes.clone()),
                None => entry.size,
            }
        };
        let read =
            self.folder.as_ref().and_then(|folder| read_intact(&file_of(folder, digest), digest, size));
        let mut held = self.lock();
        match read {
            Some(bytes) => {
                if let Some(entry) = held.bitstreams.get_mut(digest) {
                    entry.bytes = Some(bytes.clone());
                }
                Some(bytes)
            }
            None => {
                held.remove(digest);
                drop(held);
                self.delete_files(&[*digest]);
                None
            }
        }
    }

    /// Stores `bytes`; the same bytes again cost nothing.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`].
    pub fn insert(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        self.fits(bytes.len() as u64)?;
        let digest = digest_of(&bytes);
        self.put(digest, bytes);
        Ok(digest)
    }

    /// Stores `bytes` that a client announced as `announced`.
    ///
    /// # Errors
    /// [`StoreError::OtherBytes`] if they are not those, [`StoreError::TooLarge`].
    pub fn insert_as(&self, announced: Digest, bytes: Bytes) -> Result<(), StoreError> {
        self.fits(bytes.len() as u64)?;
        let actual = digest_of(&bytes);
        if actual != announced {
            return Err(StoreError::OtherBytes { announced, actual });
        }
        self.put(actual, bytes);
        Ok(())
    }

    /// How many bytes are stored.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Whether a bitstream of `size` bytes can be stored.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`].
    pub fn fits(&self, size: u64) -> Result<(), StoreError> {
        if size > self.limit { Err(StoreError::TooLarge { size, limit: self.limit }) } else { Ok(()) }
    }

    fn put(&self, digest: Digest, bytes: Bytes) {
        let evicted = {
            let mut held = self.lock();
            if let Some(entry) = held.touch(&digest) {
                entry.bytes.get_or_insert(bytes);
                return;
            }
            let last_use = held.uses;
            held.add(digest, Entry { size: bytes.len() as u64, bytes: Some(bytes.clone()), last_use });
            held.evict(self.limit)
        };
        if let Some(folder) = &self.folder
            && let Err(error) = write_whole(folder, &digest, &bytes)
        {
            warn!(%error, %digest, "Bitstream is kept in memory only");
        }
        self.delete_files(&evicted);
        // Another thread may have evicted it before its file was there.
        if !self.lock().bitstreams.contains_key(&digest) {
            self.delete_files(&[digest]);
        }
    }

    fn delete_files(&self, digests: &[Digest]) {
        let Some(folder) = &self.folder else { return };
        for digest in digests {
            let file = file_of(folder, digest);
            if let Err(error) = fs::remove_file(&file)
                && error.kind() != io::ErrorKind::NotFound
            {
                warn!(%error, file = %file.display(), "Evicted bitstream can't be deleted");
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn touch(&mut self, digest: &Digest) -> Option<&mut Entry> {
        self.uses += 1;
        let entry = self.bitstreams.get_mut(digest)?;
        entry.last_use = self.uses;
        Some(entry)
    }

    fn add(&mut self, digest: Digest, entry: Entry) {
        self.bytes += entry.size;
        self.bitstreams.insert(digest, entry);
    }

    fn remove(&mut self, digest: &Digest) {
        if let Some(entry) = self.bitstreams.remove(digest) {
            self.bytes -= entry.size;
        }
    }

    fn evict(&mut self, limit: u64) -> Vec<Digest> {
        let mut evicted = Vec::new();
        while self.bytes > limit {
            let oldest = self.bitstreams.iter().min_by_key(|(_, entry)| entry.last_use);
            let Some(digest) = oldest.map(|(digest, _)| *digest) else { break };
            self.remove(&digest);
            evicted.push(digest);
        }
        evicted
    }
}

fn file_of(folder: &Path, digest: &Digest) -> PathBuf {
    let text = digest.to_string();
    folder.join(text.strip_prefix("sha256:").unwrap_or(&text))
}

/// The file's bytes, if they still are what its name says: others may have had the folder in their hands.
fn read_intact(file: &Path, digest: &Digest, size: u64) -> Option<Bytes> {
    let mut bytes = Vec::new();
    let read = fs::File::open(file).and_then(|file| file.take(size + 1).read_to_end(&mut bytes));
    match read {
        Ok(_) if digest_of(&bytes) == *digest => Some(bytes.into()),
        Ok(_) => {
            warn!(file = %file.display(), "Stored bitstream is damaged and is left out");
            None
        }
        Err(error) => {
            warn!(%error, file = %file.display(), "Stored bitstream can't be read and is left out");
            None
        }
    }
}

fn write_whole(folder: &Path, digest: &Digest, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    // Before it has its name: what has one is whole, also after the machine lost its power.
    file.as_file().sync_data()?;
    file.persist(file_of(folder, digest))?;
    Ok(())
}

#[cfg(test)]
mod tests;
