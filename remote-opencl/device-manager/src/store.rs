//! The bitstreams that clients brought, by the digest of their bytes (B-8), with a limit on their size.
//!
//! In memory, and in a folder too where one is given, so that they outlive the process. What was used longest ago goes
//! first. Callers pass bytes of their own: nothing is hashed in memory that a client can still write to.
//!
//! A digest is no secret: it is in node states, pods and logs. So a tenant gets the bytes, and hears that they are here, only
//! after it has brought them once itself, however many others have; the operator's own are everybody's.

mod digested;

pub use digested::Digested;

use crate::dispatcher::Tenant;
use bytes::Bytes;
use fpga_core::bitstream::Digest;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tracing::warn;

/// How files that are being written are called.
const UNFINISHED: &str = ".unfinished-";
/// What the name of the file ends with that says who has brought a bitstream.
const TENANTS: &str = ".tenants";
/// Most tenants that are remembered of a bitstream; others bring the bytes each time.
const MAX_TENANTS: usize = 1024;
/// Longest file of tenants.
const MAX_TENANTS_BYTES: u64 = 1 << 20;

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
    access: Access,
}

/// Who may have a bitstream's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Access {
    /// It is the operator's.
    Everybody,
    /// Those who have brought it.
    Tenants(BTreeSet<Tenant>),
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
            let access = Access::Tenants(read_tenants(folder, &digest));
            held.add(digest, Entry { size, bytes: None, last_use: 0, access });
        }
        let evicted = held.evict(limit);
        let store = Self { limit, folder: Some(folder.to_owned()), held: Mutex::new(held) };
        store.delete_files(&evicted);
        Ok(store)
    }

    /// The bitstream `digest` for a tenant that has brought it, or where it is the operator's. Counts as a use.
    #[must_use]
    pub fn get_for(&self, tenant: &Tenant, digest: &Digest) -> Option<Digested> {
        let may = self.lock().bitstreams.get(digest).is_some_and(|entry| entry.access.includes(tenant));
        let bytes = if may { self.get(digest) } else { None };
        bytes.map(|bytes| Digested { digest: *digest, bytes })
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

    /// Stores `bytes` of the operator's, which all tenants may have; the same bytes again cost nothing.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`].
    pub fn insert(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        self.fits(bytes.len() as u64)?;
        let bitstream = Digested::from(bytes);
        let digest = bitstream.digest;
        self.put(bitstream, &Access::Everybody);
        Ok(digest)
    }

    /// Stores a bitstream that a client of `tenant` has brought.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`].
    pub fn insert_as(&self, bitstream: Digested, tenant: &Tenant) -> Result<(), StoreError> {
        self.fits(bitstream.bytes.len() as u64)?;
        self.put(bitstream, &Access::Tenants([tenant.clone()].into()));
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

    fn put(&self, Digested { digest, bytes }: Digested, access: &Access) {
        let evicted = {
            let mut held = self.lock();
            if let Some(entry) = held.touch(&digest) {
                entry.bytes.get_or_insert(bytes);
                if entry.access.widen(access) {
                    self.remember(&digest, &entry.access);
                }
                return;
            }
            let last_use = held.uses;
            let (size, access) = (bytes.len() as u64, access.clone());
            held.add(digest, Entry { size, bytes: Some(bytes.clone()), last_use, access });
            held.evict(self.limit)
        };
        if let Some(folder) = &self.folder
            && let Err(error) = write_whole(folder, &file_of(folder, &digest), &bytes)
        {
            warn!(%error, %digest, "Bitstream is kept in memory only");
        }
        self.remember(&digest, access);
        self.delete_files(&evicted);
        // Another thread may have evicted it before its file was there.
        if !self.lock().bitstreams.contains_key(&digest) {
            self.delete_files(&[digest]);
        }
    }

    /// Writes down who may have a bitstream, for the next manager. It is a short file: other tenants wait meanwhile.
    fn remember(&self, digest: &Digest, access: &Access) {
        let (Some(folder), Access::Tenants(tenants)) = (&self.folder, access) else { return };
        let names: Vec<_> = tenants.iter().map(Tenant::as_str).collect();
        let written = serde_json::to_vec(&names)
            .map_err(io::Error::from)
            .and_then(|text| write_whole(folder, &tenants_file_of(folder, digest), &text));
        if let Err(error) = written {
            warn!(%error, %digest, "Who has brought a bitstream is kept in memory only");
        }
    }

    fn delete_files(&self, digests: &[Digest]) {
        let Some(folder) = &self.folder else { return };
        for digest in digests {
            for file in [file_of(folder, digest), tenants_file_of(folder, digest)] {
                if let Err(error) = fs::remove_file(&file)
                    && error.kind() != io::ErrorKind::NotFound
                {
                    warn!(%error, file = %file.display(), "Evicted bitstream can't be deleted");
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Access {
    fn includes(&self, tenant: &Tenant) -> bool {
        match self {
            Self::Everybody => true,
            Self::Tenants(tenants) => tenants.contains(tenant),
        }
    }

    /// Takes in those of another; whether that changed anything.
    fn widen(&mut self, other: &Self) -> bool {
        match (&mut *self, other) {
            (Self::Everybody, _) => false,
            (Self::Tenants(_), Self::Everybody) => {
                *self = Self::Everybody;
                true
            }
            (Self::Tenants(known), Self::Tenants(more)) => {
                let before = known.len();
                known.extend(more.iter().take(MAX_TENANTS.saturating_sub(before)).cloned());
                known.len() > before
            }
        }
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

fn tenants_file_of(folder: &Path, digest: &Digest) -> PathBuf {
    let mut file = file_of(folder, digest).into_os_string();
    file.push(TENANTS);
    file.into()
}

/// Who has brought a bitstream, as it was written down; nobody where that can't be read.
fn read_tenants(folder: &Path, digest: &Digest) -> BTreeSet<Tenant> {
    let mut text = Vec::new();
    let file = fs::File::open(tenants_file_of(folder, digest));
    let read = file.and_then(|file| file.take(MAX_TENANTS_BYTES).read_to_end(&mut text));
    let names: Vec<String> = read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default();
    names.iter().take(MAX_TENANTS).map(|name| Tenant::new(name)).collect()
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

fn write_whole(folder: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = tempfile::Builder::new().prefix(UNFINISHED).tempfile_in(folder)?;
    file.write_all(bytes)?;
    // Before it has its name: what has one is whole, also after the machine lost its power.
    file.as_file().sync_data()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests;
