//! The folder that contains the folders of a manager's tenant processes. It is locked while the manager
//! lives, so that the next manager can remove the folder of one that was killed.

use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "fpga-tenants-";
const LOCK: &str = "lock";

/// A locked folder; dropping the value removes it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    _lock: Flock<File>,
}

impl Folder {
    /// Makes a new folder among the temporary files, and removes the folders of managers that have ended.
    ///
    /// # Errors
    /// The folder or its lock can't be made.
    pub fn make() -> io::Result<Self> {
        Self::make_in(&std::env::temp_dir())
    }

    fn make_in(temporary: &Path) -> io::Result<Self> {
        remove_stale(temporary);
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(temporary)?;
        // The lock file gets its final name after it is locked: a folder whose lock can be taken belongs to
        // no manager.
        let new = folder.path().join("new");
        let lock = lock(File::create(&new)?)?;
        std::fs::rename(new, folder.path().join(LOCK))?;
        Ok(Self { path: folder.keep(), _lock: lock })
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // If this fails, the next manager removes the folder.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

fn lock(file: File) -> io::Result<Flock<File>> {
    Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, error)| error.into())
}

fn remove_stale(temporary: &Path) {
    for entry in std::fs::read_dir(temporary).into_iter().flatten().flatten() {
        let is_one = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if is_one && File::open(entry.path().join(LOCK)).and_then(lock).is_ok() {
            // Another manager may be removing the folder at the same time.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_manager_left_is_removed_and_what_a_living_one_has_is_not() {
        let temporary = tempfile::tempdir().unwrap();
        let living = Folder::make_in(temporary.path()).unwrap();
        // No manager holds the lock of this folder.
        let left = temporary.path().join(format!("{PREFIX}killed"));
        std::fs::create_dir(&left).unwrap();
        std::fs::write(left.join(LOCK), "").unwrap();
        let another = temporary.path().join("of-somebody-else");
        std::fs::create_dir(&another).unwrap();
        std::fs::write(another.join(LOCK), "").unwrap();
        let next = Folder::make_in(temporary.path()).unwrap();
        assert!(!left.exists() && another.exists());
        assert!(living.path().exists() && next.path().exists());
        let path = living.path().to_owned();
        drop(living);
        assert!(!path.exists());
    }
}
