//! The cgroup below which a node has all its pods, in each of the system's hierarchies. A kubelet removes cgroups of
//! pods that it doesn't know, so no two kubelets of a machine may share one.

use anyhow::{Context as _, Result, ensure};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest time that a drop waits for the end of killed processes.
const REMOVE: Duration = Duration::from_secs(5);

/// A cgroup, removed with all below it when dropped.
#[derive(Debug)]
pub struct Cgroup {
    name: String,
    folders: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes the cgroup. One with this name that an earlier test program left is removed first.
    ///
    /// # Errors
    /// The system has no cgroups, or they can't be written.
    pub fn create(name: &str) -> Result<Self> {
        let mounts =
            std::fs::read_to_string("/proc/self/mounts").context("can't read the system's mounts")?;
        let folders: Vec<_> =
            hierarchies(&mounts).into_iter().map(|hierarchy| hierarchy.join(name)).collect();
        ensure!(!folders.is_empty(), "this machine has no cgroups below /sys/fs/cgroup");
        for folder in &folders {
            remove_tree(folder);
            std::fs::create_dir(folder).with_context(|| {
                format!("can't make the cgroup {}; are cgroups read-only here?", folder.display())
            })?;
        }
        Ok(Self { name: name.to_owned(), folders })
    }

    /// The path of the cgroup in each hierarchy.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let deadline = Instant::now() + REMOVE;
        for folder in &self.folders {
            while !remove_tree(folder) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
}

/// The folders of all hierarchies: those of version 1, and the one of version 2, in which runc makes cgroups too where
/// both are mounted.
fn hierarchies(mounts: &str) -> Vec<PathBuf> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    let below =
        |(path, kind): &(&str, &str)| path.starts_with("/sys/fs/cgroup") && kind.starts_with("cgroup");
    mounts.filter(below).map(|(path, _)| path.into()).collect()
}

/// Removes a cgroup and those below it; returns whether it is gone.
fn remove_tree(folder: &Path) -> bool {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path());
        }
    }
    // A cgroup with processes stays; the caller tries again.
    let _ = std::fs::remove_dir(folder);
    !folder.exists()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_hierarchies_of_both_versions_count() {
        let both = "cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\ncgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n";
        assert_eq!(hierarchies(both), ["/sys/fs/cgroup/cpu", "/sys/fs/cgroup/unified"].map(Path::new));
        let two = "cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\ntmpfs /tmp tmpfs rw 0 0\n";
        assert_eq!(hierarchies(two), [Path::new("/sys/fs/cgroup")]);
    }
}
