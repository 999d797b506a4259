//! The folder that contains the folders of a manager's tenant processes, and the records of these processes. It is locked
//! while the manager lives, so that the next manager can remove the folder of one that was killed, once its processes have
//! ended ([`crate::former`]).

use crate::former::{self, FormerProcess};
use nix::fcntl::{Flock, FlockArg};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

const PREFIX: &str = "fpga-tenants-";
const LOCK: &str = "lock";
const RECORDS: &str = "processes";

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
        std::fs::create_dir(records(folder.path()))?;
        let new = folder.path().join("new");
        let lock = lock(File::create(&new)?, FlockArg::LockExclusiveNonblock)?;
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

/// Where a folder has the records of the manager's tenant processes.
pub(super) fn records(folder: &Path) -> PathBuf {
    folder.join(RECORDS)
}

/// The tenant processes of managers that have ended which still run. Their manager may have been that of another board:
/// its processes are to end, too.
#[must_use]
pub fn former_processes() -> Vec<FormerProcess> {
    former_in(&std::env::temp_dir())
}

fn former_in(temporary: &Path) -> Vec<FormerProcess> {
    stale(temporary).flat_map(|folder| former::running(&records(&folder))).collect()
}

fn lock(file: File, how: FlockArg) -> io::Result<Flock<File>> {
    Flock::lock(file, how).map_err(|(_, error)| error.into())
}

/// The folders of managers that have ended.
fn stale(temporary: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = std::fs::read_dir(temporary).into_iter().flatten().flatten();
    entries.filter_map(|entry| {
        let is_one = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        // Several managers may look at the same time, and none takes another one's look for the manager of the folder.
        let look = |file| lock(file, FlockArg::LockSharedNonblock);
        (is_one && File::open(entry.path().join(LOCK)).and_then(look).is_ok()).then(|| entry.path())
    })
}

fn remove_stale(temporary: &Path) {
    for folder in stale(temporary) {
        // Records are needed for as long as a process runs that they name.
        if former::running(&records(&folder)).is_empty() {
            // Another manager may be removing the folder at the same time.
            let _ = std::fs::remove_dir_all(folder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

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

    #[test]
    fn a_process_of_a_killed_manager_is_found_and_its_folder_stays_until_it_has_ended() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::make_in(temporary.path()).unwrap();
        let path = folder.path().to_owned();
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        former::record(&records(&path), child.id()).unwrap();
        assert!(former_in(temporary.path()).is_empty(), "its manager lives");
        // As if the manager was killed: its lock keeps nobody from a look, and the folder is there.
        let Folder { _lock: lock, .. } = &folder;
        lock.relock(FlockArg::LockSharedNonblock).unwrap();
        let found = former_in(temporary.path());
        assert_eq!(found.iter().map(FormerProcess::pid).collect::<Vec<_>>(), [child.id()]);
        let next = Folder::make_in(temporary.path()).unwrap();
        assert!(path.exists());
        found[0].kill();
        child.wait().unwrap();
        assert!(former_in(temporary.path()).is_empty());
        let after = Folder::make_in(temporary.path()).unwrap();
        assert!(!path.exists() && next.path().exists() && after.path().exists());
    }
}
