//! The accelerators that this manager knows by name: files `NAME.bitstream` of one folder.
//!
//! Read once at the start. A bitstream that isn't here has no name and is known by its digest.

use crate::store::{BitstreamStore, StoreError};
use fpga_core::bitstream::{BitstreamId, Digest, InvalidBitstreamId};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

const EXTENSION: &str = "bitstream";

/// Names of bitstreams.
#[derive(Debug, Default)]
pub struct Catalogue {
    names: BTreeMap<Digest, String>,
}

/// Why a catalogue can't be read.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// The folder or a file of it can't be read.
    #[error("cannot read {}: {source}", .path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file's name is no accelerator name.
    #[error("{}: {source}; name the file NAME.bitstream", .path.display())]
    Name {
        /// Which.
        path: PathBuf,
        /// Why.
        source: InvalidBitstreamId,
    },
    /// A bitstream doesn't fit into the store.
    #[error("{}: {source}", .path.display())]
    Store {
        /// Which.
        path: PathBuf,
        /// Why.
        source: StoreError,
    },
}

impl Catalogue {
    /// Reads the files `NAME.bitstream` of `folder` and puts their bytes into `store`. Where two have the same bytes, the
    /// first name in the alphabet counts.
    ///
    /// # Errors
    /// [`CatalogueError`] names the file.
    pub fn read(folder: &Path, store: &BitstreamStore) -> Result<Self, CatalogueError> {
        let unreadable = |path: &Path| {
            let path = path.to_owned();
            move |source| CatalogueError::Read { path, source }
        };
        let mut paths = std::fs::read_dir(folder)
            .and_then(|files| files.map(|file| file.map(|file| file.path())).collect::<io::Result<Vec<_>>>())
            .map_err(unreadable(folder))?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == EXTENSION));
        paths.sort();
        let mut names = BTreeMap::new();
        for path in paths {
            let name = path.file_stem().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if let Err(source) = name.parse::<BitstreamId>() {
                return Err(CatalogueError::Name { path, source });
            }
            let bytes = std::fs::read(&path).map_err(unreadable(&path))?;
            let digest =
                store.insert(bytes.into()).map_err(|source| CatalogueError::Store { path, source })?;
            names.entry(digest).or_insert(name);
        }
        Ok(Self { names })
    }

    /// How many bitstreams have a name.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether none has.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The accelerator name of a bitstream.
    #[must_use]
    pub fn name_of(&self, digest: &Digest) -> Option<&str> {
        self.names.get(digest).map(String::as_str)
    }

    /// The bitstream of that accelerator name.
    #[must_use]
    pub fn named(&self, name: &str) -> Option<Digest> {
        self.names.iter().find(|(_, other)| *other == name).map(|(digest, _)| *digest)
    }

    /// How a bitstream is called in events: by name, else by digest.
    #[must_use]
    pub fn id_of(&self, digest: Digest) -> BitstreamId {
        match self.names.get(&digest) {
            Some(name) => BitstreamId::Name(name.clone()),
            None => BitstreamId::Digest(digest),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::digest_of;

    #[test]
    fn a_folder_names_its_bitstreams_and_fills_the_store() {
        let dir = tempfile::tempdir().unwrap();
        for (name, bytes) in
            [("b.bitstream", "x"), ("a.bitstream", "x"), ("mm.bitstream", "y"), ("mm.cl", "z")]
        {
            std::fs::write(dir.path().join(name), bytes).unwrap();
        }
        let store = BitstreamStore::in_memory(100);
        let catalogue = Catalogue::read(dir.path(), &store).unwrap();
        let (x, z) = (digest_of(b"x"), digest_of(b"z"));
        assert_eq!((catalogue.len(), catalogue.name_of(&x), catalogue.name_of(&z)), (2, Some("a"), None));
        assert_eq!(catalogue.id_of(z), BitstreamId::Digest(z));
        assert!(store.contains(&x) && !store.contains(&z));
    }

    #[test]
    fn a_file_with_an_impossible_name_and_a_missing_folder_are_named() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("so bel.bitstream"), "x").unwrap();
        let store = BitstreamStore::in_memory(100);
        let error = Catalogue::read(dir.path(), &store).unwrap_err().to_string();
        assert!(error.contains("so bel.bitstream") && error.contains("' '"), "{error}");
        let error = Catalogue::read(&dir.path().join("none"), &store).unwrap_err().to_string();
        assert!(error.contains("none"), "{error}");
    }
}
