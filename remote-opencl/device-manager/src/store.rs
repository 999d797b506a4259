//! The bitstreams that clients brought, by the digest of their bytes (B-8), with a limit on their size.
//!
//! In memory, and in a folder too where one is given, so that they outlive the process. What was used longest ago goes
//! first. Callers pass bytes of their own: nothing is hashed in memory that a client can still write to.

use bytes::Bytes;
use fpga_core::bitstream::Digest;
use sha2::{Digest as _, Sha256};
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    bytes: Bytes,
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

    /// Whether the bytes of `digest` are here.
    #[must_use]
    pub fn contains(&self, digest: &Digest) -> bool {
        self.get(digest).is_some()
    }

    /// The bytes of `digest`, which counts as a use.
    #[must_use]
    pub fn get(&self, digest: &Digest) -> Option<Bytes> {
        self.lock().touch(digest)
    }

    /// Stores `bytes`; the same bytes again cost nothing.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`].
    pub fn insert(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        self.check_size(&bytes)?;
        let digest = digest_of(&bytes);
        self.lock().put(digest, bytes, self.limit);
        Ok(digest)
    }

    /// Stores `bytes` that a client announced as `announced`.
    ///
    /// # Errors
    /// [`StoreError::OtherBytes`] if they are not those, [`StoreError::TooLarge`].
    pub fn insert_as(&self, announced: Digest, bytes: Bytes) -> Result<(), StoreError> {
        self.check_size(&bytes)?;
        let actual = digest_of(&bytes);
        if actual != announced {
            return Err(StoreError::OtherBytes { announced, actual });
        }
        self.lock().put(actual, bytes, self.limit);
        Ok(())
    }

    /// How many bytes are stored.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    fn check_size(&self, bytes: &Bytes) -> Result<(), StoreError> {
        let size = bytes.len() as u64;
        if size > self.limit { Err(StoreError::TooLarge { size, limit: self.limit }) } else { Ok(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn touch(&mut self, digest: &Digest) -> Option<Bytes> {
        self.uses += 1;
        let entry = self.bitstreams.get_mut(digest)?;
        entry.last_use = self.uses;
        Some(entry.bytes.clone())
    }

    fn put(&mut self, digest: Digest, bytes: Bytes, limit: u64) {
        if self.touch(&digest).is_some() {
            return;
        }
        self.bytes += bytes.len() as u64;
        self.bitstreams.insert(digest, Entry { bytes, last_use: self.uses });
        while self.bytes > limit {
            let oldest =
                self.bitstreams.iter().min_by_key(|(_, entry)| entry.last_use).map(|(digest, _)| *digest);
            let Some(evicted) = oldest.and_then(|digest| self.bitstreams.remove(&digest)) else { break };
            self.bytes -= evicted.bytes.len() as u64;
        }
    }
}
