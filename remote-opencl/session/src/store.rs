//! A store of the bitstreams that clients sent, by the digest of their bytes (B-8), with a limit on their total
//! size.
//!
//! Bitstreams are kept in memory, and also in a folder if one is given, so that they outlive the process. The least
//! recently used bitstream is evicted first. Callers pass bytes of their own: bytes are never hashed in memory that
//! a client can still write to.
//!
//! A digest is not secret: who may read nodes, pods or logs knows it. So a tenant gets the bytes of a bitstream, or
//! learns that the store has them, only after it has sent them once itself, even if other tenants have sent them.
//! The operator's bitstreams are for every tenant.

mod digested;

pub use digested::Digested;

use bytes::Bytes;
use fpga_board::dispatch::Tenant;
use fpga_core::bitstream::Digest;
use parking_lot::{Mutex, MutexGuard};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use tracing::warn;

/// Prefix of files that are being written.
const UNFINISHED: &str = ".unfinished-";
/// Suffix of the file that lists the tenants that have sent a bitstream.
const TENANTS: &str = ".tenants";
/// Maximum number of tenants that are remembered for a bitstream. Further tenants send the bytes each time.
const MAX_TENANTS: usize = 1024;
/// Maximum number of bytes that are read of a list of tenants.
const MAX_TENANTS_BYTES: u64 = 1 << 20;

/// The bitstreams of the manager.
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
    /// The bytes; `None` while only the folder has them.
    bytes: Option<Bytes>,
    last_use: u64,
    access: Access,
}

/// The tenants that may have a bitstream's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Access {
    /// All tenants: the bitstream is the operator's.
    Everybody,
    /// The tenants that have sent the bytes.
    Tenants(BTreeSet<Tenant>),
}

/// The reason why a bitstream was not stored.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The bitstream is larger than the store's limit.
    #[error("a bitstream of {size} bytes is larger than the store's limit of {limit} bytes (--store-limit)")]
    TooLarge {
        /// Size of the bitstream in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The bytes have another digest than the client announced.
    #[error("the bytes have the digest {actual}, not {announced}")]
    OtherBytes {
        /// The announced digest.
        announced: Digest,
        /// The digest of the bytes.
        actual: Digest,
    },
    /// The folder can't be used.
    #[error("cannot use the bitstream store's folder {}: {source}", .folder.display())]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The SHA-256 of `bytes`.
#[must_use]
pub fn digest_of(bytes: &[u8]) -> Digest {
    Digest::from_bytes(Sha256::digest(bytes).into())
}

impl BitstreamStore {
    /// Makes a store of at most `limit` bytes in memory.
    #[must_use]
    pub fn in_memory(limit: u64) -> Self {
        Self { limit, folder: None, held: Mutex::default() }
    }

    /// Makes a store of at most `limit` bytes that is also kept in `folder`. Bitstreams that are already in the
    /// folder belong to the store.
    ///
    /// # Errors
    /// [`StoreError::Folder`] if the folder can't be made or read.
    pub fn in_folder(limit: u64, folder: &Path) -> Result<Self, StoreError> {
        let failed = |source| StoreError::Folder { folder: folder.to_owned(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut held = Held::default();
        for file in fs::read_dir(folder).map_err(failed)? {
            let file = file.map_err(failed)?;
            let name = file.file_name();
            if name.to_string_lossy().starts_with(UNFINISHED) {
                // An earlier manager ended while it wrote the file. No other process should write here; one that
                // does loses only a copy on disk.
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

    /// The bitstream `digest`, if `tenant` has sent it or if it is the operator's. Counts as a use.
    #[must_use]
    pub fn get_for(&self, tenant: &Tenant, digest: &Digest) -> Option<Digested> {
        let may = self.lock().bitstreams.get(digest).is_some_and(|entry| entry.access.includes(tenant));
        let bytes = if may { self.get(digest) } else { None };
        bytes.map(|bytes| Digested { digest: *digest, bytes })
    }

    /// Whether the store has the bytes of `digest`, intact. Counts as a use.
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

    /// Stores `bytes` of the operator, which all tenants may have. Storing the same bytes again takes no more room.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if the bytes exceed the limit of the store.
    pub fn insert(&self, bytes: Bytes) -> Result<Digest, StoreError> {
        self.fits(bytes.len() as u64)?;
        let bitstream = Digested::from(bytes);
        let digest = bitstream.digest;
        self.put(bitstream, &Access::Everybody);
        Ok(digest)
    }

    /// Stores a bitstream that a client of `tenant` has sent.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if the bitstream exceeds the limit of the store.
    pub fn insert_as(&self, bitstream: Digested, tenant: &Tenant) -> Result<(), StoreError> {
        self.fits(bitstream.bytes.len() as u64)?;
        self.put(bitstream, &Access::Tenants([tenant.clone()].into()));
        Ok(())
    }

    /// Total size of the bitstreams in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.lock().bytes
    }

    /// Checks that a bitstream of `size` bytes can be stored.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`] if `size` exceeds the limit of the store.
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
        // Another thread may have evicted the bitstream before its file was written.
        if !self.lock().bitstreams.contains_key(&digest) {
            self.delete_files(&[digest]);
        }
    }

    /// Writes the tenants that may have a bitstream to the folder, for the next manager. The caller may hold the
    /// lock meanwhile, since the file is short.
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
        self.held.lock()
    }
}

impl Access {
    fn includes(&self, tenant: &Tenant) -> bool {
        match self {
            Self::Everybody => true,
            Self::Tenants(tenants) => tenants.contains(tenant),
        }
    }

    /// Adds the tenants of `other`. Returns whether any was added.
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

/// The tenants that have sent a bitstream, from the folder; empty if the file can't be read.
fn read_tenants(folder: &Path, digest: &Digest) -> BTreeSet<Tenant> {
    let mut text = Vec::new();
    let file = fs::File::open(tenants_file_of(folder, digest));
    let read = file.and_then(|file| file.take(MAX_TENANTS_BYTES).read_to_end(&mut text));
    let names: Vec<String> = read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default();
    names.iter().take(MAX_TENANTS).map(|name| Tenant::new(name)).collect()
}

/// The bytes of a file if their digest is the one in its name, since other processes may have changed the folder.
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
    // The data is synced before the file gets its name, so that a named file is whole even after a power failure.
    file.as_file().sync_data()?;
    file.persist(path)?;
    Ok(())
}

#[cfg(test)]
mod tests;
