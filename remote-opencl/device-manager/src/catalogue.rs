//! The accelerators that this manager knows by name: files `NAME.bitstream` of one folder.
//!
//! The folder is read at the start and again every second ([`Catalogue::watch`]), so that a file counts without a restart.
//! A file that can't be used is logged and counted, and the others count. A bitstream without a file has no name and is
//! known by its digest.

mod file;

use crate::objects::lock;
use crate::store::BitstreamStore;
use file::{NamedFile, When};
use fpga_core::bitstream::{BitstreamId, Digest};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const EXTENSION: &str = "bitstream";

/// How often the folder is read again.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Names of bitstreams.
#[derive(Debug, Default)]
pub struct Catalogue {
    /// Nothing where no bitstream has a name.
    folder: Option<PathBuf>,
    /// By path. Held while files are read, so that nobody but readers of the folder takes it.
    files: Mutex<BTreeMap<PathBuf, NamedFile>>,
    names: Mutex<Arc<BTreeMap<Digest, String>>>,
    refused: AtomicUsize,
}

/// The folder of bitstreams can't be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read the folder {}: {source}", .folder.display())]
pub struct UnreadableFolder {
    folder: PathBuf,
    source: io::Error,
}

/// What reading the folder again came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Every bitstream has the name that it had.
    Unchanged,
    /// A bitstream got a name, or lost one.
    Changed,
}

impl Catalogue {
    /// Reads the files `NAME.bitstream` of `folder` and puts their bytes into `store`. Where two have the same bytes, the
    /// first name in the alphabet counts.
    ///
    /// # Errors
    /// [`UnreadableFolder`]. A file that can't be used is no error: it is logged, and has no name.
    pub fn read(folder: &Path, store: &BitstreamStore) -> Result<Self, UnreadableFolder> {
        let catalogue = Self { folder: Some(folder.to_owned()), ..Self::default() };
        catalogue.look(store, When::AtOnce)?;
        Ok(catalogue)
    }

    /// Reads the folder again: new and changed files once they have stayed the same since the last time, since they may
    /// still be being written.
    ///
    /// # Errors
    /// [`UnreadableFolder`], and all names stay.
    pub fn reload(&self, store: &BitstreamStore) -> Result<Names, UnreadableFolder> {
        self.look(store, When::Settled)
    }

    /// Reads the folder again every second, on a thread of its own, for as long as the catalogue is in use. Calls `changed`
    /// when names have changed.
    ///
    /// # Errors
    /// The system's, if it has no thread.
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
        let mut files = lock(&self.files);
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
        let mut now = lock(&self.names);
        if **now == names {
            return Ok(Names::Unchanged);
        }
        *now = Arc::new(names);
        Ok(Names::Changed)
    }

    fn names(&self) -> Arc<BTreeMap<Digest, String>> {
        lock(&self.names).clone()
    }

    /// How many bitstreams have a name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names().len()
    }

    /// Whether no bitstream has a name.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names().is_empty()
    }

    /// How many files of the folder can't be used.
    #[must_use]
    pub fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// The accelerator name of a bitstream.
    #[must_use]
    pub fn name_of(&self, digest: &Digest) -> Option<String> {
        self.names().get(digest).cloned()
    }

    /// The bitstream of that accelerator name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Digest> {
        self.names().iter().find(|(_, other)| *other == name).map(|(digest, _)| *digest)
    }

    /// How a bitstream is called in events: by name, else by digest.
    #[must_use]
    pub fn id_of(&self, digest: Digest) -> BitstreamId {
        self.name_of(&digest).map_or(BitstreamId::Digest(digest), BitstreamId::Name)
    }
}

#[cfg(test)]
mod tests;
