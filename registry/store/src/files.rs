//! The files of a store on disk.

use crate::contents::{Contents, Item};
use crate::source::{Owner, hex};
use fpga_artifacts::{MAX_BITSTREAM_BYTES, of_file};
use fpga_core::bitstream::Digest;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Most owners whose sources have delivered the same bytes.
const MAX_DELIVERIES: usize = 256;

/// The folder of a store.
#[derive(Debug, Clone)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Makes the folder if there is none.
    pub(crate) fn make(path: &Path) -> io::Result<Self> {
        let folder = Self(path.to_owned());
        for path in [folder.whole_files(), folder.partial_files(), folder.deliveries()] {
            DirBuilder::new().recursive(true).mode(0o700).create(path)?;
        }
        Ok(folder)
    }

    /// What lies in the folder. Whoever uses a whole file compares its digest first.
    pub(crate) fn contents(&self) -> io::Result<Contents> {
        let mut found: Vec<(SystemTime, Item, u64)> = Vec::new();
        for (path, is_whole) in [(self.whole_files(), true), (self.partial_files(), false)] {
            for entry in fs::read_dir(path)? {
                let (entry, name) =
                    (entry.as_ref().map(fs::DirEntry::path), entry.as_ref().map(fs::DirEntry::file_name));
                let (Ok(path), Ok(name)) = (entry, name) else { continue };
                let name = name.to_string_lossy().into_owned();
                let digest = format!("sha256:{name}").parse().ok();
                let item = match (digest, is_whole) {
                    (Some(digest), true) => Item::Whole(digest),
                    (Some(_), false) => Item::Partial(name),
                    // Nobody but the store writes here.
                    (None, _) => {
                        fs::remove_file(path)?;
                        continue;
                    }
                };
                let metadata = fs::metadata(&path)?;
                found.push((metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH), item, metadata.len()));
            }
        }
        found.sort();
        Ok(Contents::of(found.into_iter().map(|(_, item, bytes)| (item, bytes))))
    }

    pub(crate) fn path(&self, item: &Item) -> PathBuf {
        match item {
            Item::Whole(digest) => self.whole_files().join(hex(digest)),
            Item::Partial(key) => self.partial_files().join(key),
        }
    }

    /// Removes a file, if it is there. With a whole file go the notes of who has delivered it.
    pub(crate) fn remove(&self, item: &Item) -> io::Result<()> {
        if let Item::Whole(digest) = item {
            absent(fs::remove_dir_all(self.deliveries_of(*digest)))?;
        }
        absent(fs::remove_file(self.path(item)))
    }

    /// Whether a source of this owner has delivered the bytes.
    pub(crate) fn is_delivered(&self, digest: Digest, owner: &Owner) -> bool {
        self.deliveries_of(digest).join(owner.key()).exists()
    }

    /// Notes that a source of this owner has delivered the bytes.
    pub(crate) fn delivered(&self, digest: Digest, owner: &Owner) -> io::Result<()> {
        let notes = self.deliveries_of(digest);
        DirBuilder::new().recursive(true).mode(0o700).create(&notes)?;
        if fs::read_dir(&notes)?.count() >= MAX_DELIVERIES {
            // The sources of the owners that are left out deliver again.
            fs::remove_dir_all(&notes)?;
            DirBuilder::new().mode(0o700).create(&notes)?;
        }
        File::create(notes.join(owner.key())).map(drop)
    }

    /// Whether a whole file is there with the bytes of its name.
    pub(crate) fn is_whole(&self, digest: Digest) -> bool {
        let found = of_file(&self.path(&Item::Whole(digest)), MAX_BITSTREAM_BYTES);
        found.is_ok_and(|(found, _)| found == digest)
    }

    /// Notes on disk that a file is used, for a store that starts again. Without the note another file may go first.
    pub(crate) fn touch(&self, digest: Digest) {
        let file = File::open(self.path(&Item::Whole(digest)));
        let _ = file.and_then(|file| file.set_modified(SystemTime::now()));
    }

    /// Gives the partial file its name as a whole one, which survives a crash of the machine.
    pub(crate) fn finish(&self, key: &str, digest: Digest) -> io::Result<()> {
        fs::rename(self.path(&Item::Partial(key.to_owned())), self.path(&Item::Whole(digest)))?;
        File::open(self.whole_files())?.sync_all()
    }

    fn deliveries_of(&self, digest: Digest) -> PathBuf {
        self.deliveries().join(hex(&digest))
    }

    fn deliveries(&self) -> PathBuf {
        self.0.join("delivered")
    }

    fn whole_files(&self) -> PathBuf {
        self.0.join("sha256")
    }

    fn partial_files(&self) -> PathBuf {
        self.0.join("partial")
    }
}

/// A removal, where a file that is absent is no error.
fn absent(removed: io::Result<()>) -> io::Result<()> {
    match removed {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}
