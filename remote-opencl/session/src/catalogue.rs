//! The bitstreams that this manager knows by name: the files `NAME.bitstream` of one folder.
//!
//! The folder is read at the start and again every second ([`Catalogue::watch`]), so a new file needs no
//! restart. A file that cannot be used is logged and counted, and does not affect the others. A bitstream
//! without a file has no name and is identified by its digest.

mod file;

use crate::store::BitstreamStore;
use file::{NamedFile, When};
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_core::gate::Origin;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const EXTENSION: &str = "bitstream";

/// Interval at which the folder is read again.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Names of bitstreams.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// The folder; `None` if no bitstream has a name.
    folder: Option<PathBuf>,
    /// Files by path. Locked while files are read; only readers of the folder take this lock.
    files: Mutex<BTreeMap<PathBuf, NamedFile>>,
    names: Mutex<Arc<BTreeMap<Digest, String>>>,
    refused: AtomicUsize,
}

/// The error for a folder of bitstreams that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the folder {}: {source}", .folder.display())]
pub struct UnreadableFolder {
    folder: PathBuf,
    source: io::Error,
}

/// Whether reading the folder again has changed any name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// No name has changed.
    Unchanged,
    /// A bitstream got a name or lost one.
    Changed,
}

impl Catalogue {
    /// Reads the files `NAME.bitstream` of `folder` and puts their bytes into `store`. If two files have the
    /// same bytes, the name that comes first in the alphabet counts.
    ///
    /// # Errors
    /// [`UnreadableFolder`]. A file that cannot be used is not an error: it is logged and gives no name.
    pub fn read(folder: &Path, store: &BitstreamStore) -> Result<Self, UnreadableFolder> {
        let catalogue = Self { folder: Some(folder.to_owned()), ..Self::default() };
        catalogue.look(store, When::AtOnce)?;
        Ok(catalogue)
    }

    /// Reads the folder again. A new or changed file counts once it is found unchanged a second time, since
    /// it may still be being written.
    ///
    /// # Errors
    /// [`UnreadableFolder`]; all names stay as they are.
    pub fn reload(&self, store: &BitstreamStore) -> Result<Names, UnreadableFolder> {
        self.look(store, When::Settled)
    }

    /// Starts a thread that reads the folder again every second, for as long as the catalogue is in use.
    /// Calls `changed` when names have changed.
    ///
    /// # Errors
    /// The thread can't be started.
    pub fn watch(
        self: &Arc<Self>,
        store: Arc<BitstreamStore>,
        changed: impl Fn() + Send + 'static,
    ) -> io::Result<()> {
        if self.folder.is_none() {
            return Ok(());
        }
        let catalogue = Arc::downgrade(self);
        thread::Builder::new().name("bitstreams".to_owned()).spawn(move || {
            let mut logged = None;
            loop {
                thread::sleep(WATCH_INTERVAL);
                let Some(catalogue) = catalogue.upgrade() else { return };
                match catalogue.reload(&store) {
                    Ok(Names::Changed) => changed(),
                    Ok(Names::Unchanged) => logged = None,
                    Err(error) => {
                        let error = error.to_string();
                        if logged.as_ref() != Some(&error) {
                            tracing::warn!(%error, "Names of bitstreams stay as they are");
                            logged = Some(error);
                        }
                    }
                }
            }
        })?;
        Ok(())
    }

    fn look(&self, store: &BitstreamStore, when: When) -> Result<Names, UnreadableFolder> {
        let Some(folder) = &self.folder else { return Ok(Names::Unchanged) };
        let paths = std::fs::read_dir(folder)
            .and_then(|files| files.map(|file| file.map(|file| file.path())).collect::<io::Result<Vec<_>>>())
            .map_err(|source| UnreadableFolder { folder: folder.clone(), source })?;
        let mut files = self.files.lock();
        let mut before = std::mem::take(&mut *files);
        for path in paths {
            if path.extension().is_none_or(|extension| extension != EXTENSION) {
                continue;
            }
            let known = before.remove(&path);
            if let Some(file) = NamedFile::look(&path, known, store, when) {
                files.insert(path, file);
            }
        }
        let mut names = BTreeMap::new();
        for (digest, name) in files.values().filter_map(NamedFile::named) {
            names.entry(digest).or_insert_with(|| name.to_owned());
        }
        self.refused.store(files.values().filter(|file| file.is_refused()).count(), Ordering::Relaxed);
        let mut now = self.names.lock();
        if **now == names {
            return Ok(Names::Unchanged);
        }
        *now = Arc::new(names);
        Ok(Names::Changed)
    }

    fn names(&self) -> Arc<BTreeMap<Digest, String>> {
        self.names.lock().clone()
    }

    /// Number of bitstreams with a name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names().len()
    }

    /// Whether no bitstream has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names().is_empty()
    }

    /// Number of files in the folder that cannot be used.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// The name of a bitstream.
    #[must_use]
    pub fn name_of(&self, digest: &Digest) -> Option<String> {
        self.names().get(digest).cloned()
    }

    /// The bitstream with this name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Digest> {
        self.names().iter().find(|(_, other)| *other == name).map(|(digest, _)| *digest)
    }

    /// The id of a bitstream in events: its name, or its digest if it has none.
    #[must_use]
    pub fn id_of(&self, digest: Digest) -> BitstreamId {
        self.name_of(&digest).map_or(BitstreamId::Digest(digest), BitstreamId::Name)
    }

    /// Where a bitstream comes from: the folder, whoever sends the same bytes; else as the caller says.
    #[must_use]
    pub fn origin(&self, digest: Digest, otherwise: Origin) -> Origin {
        if self.names().contains_key(&digest) { Origin::OfNode } else { otherwise }
    }
}

#[cfg(test)]
mod tests;
