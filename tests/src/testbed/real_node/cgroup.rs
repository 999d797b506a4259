//! The cgroup below which a node has all its pods, in each of the system's hierarchies. A kubelet removes cgroups of
//! pods that it doesn't know, so no two kubelets of a machine may share one.

use anyhow::{Context as _, Result, ensure};
use fpga_test_kit::patience;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Beginning of the names; the id of the test program and the node's address follow.
const PREFIX: &str = "fpga-test-node-";

/// A cgroup, removed with all below it when dropped.
#[derive(Debug)]
pub struct Cgroup {
    name: String,
    folders: Vec<PathBuf>,
}

impl Cgroup {
    /// Makes a cgroup of this test program for the node with this address. Cgroups of test programs that were killed are
    /// removed first.
    ///
    /// # Errors
    /// The system has no cgroups, or they can't be written.
    pub fn create(node: Ipv4Addr) -> Result<Self> {
        let mounts =
            std::fs::read_to_string("/proc/self/mounts").context("can't read the system's mounts")?;
        let hierarchies = hierarchies(&mounts);
        hierarchies.iter().for_each(|hierarchy| remove_of_the_dead(hierarchy));
        let name = format!("{PREFIX}{}-{node}", std::process::id());
        let folders: Vec<_> = hierarchies.into_iter().map(|hierarchy| hierarchy.join(&name)).collect();
        ensure!(!folders.is_empty(), "this machine has no cgroups below /sys/fs/cgroup");
        for folder in &folders {
            std::fs::create_dir(folder).with_context(|| {
                format!("can't make the cgroup {}; are cgroups read-only here?", folder.display())
            })?;
        }
        Ok(Self { name, folders })
    }

    /// The path of the cgroup in each hierarchy.
    #[must_use]
    pub fn path(&self) -> String {
        format!("/{}", self.name)
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The killed processes end when they get a processor.
        let deadline = Instant::now() + patience();
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

/// The cgroups of the nodes that a program started, in one hierarchy.
pub(super) fn of_program(hierarchy: &Path, program: u32) -> Vec<String> {
    let prefix = format!("{PREFIX}{program}-");
    let entries = std::fs::read_dir(hierarchy).into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    own.map(|entry| entry.path().display().to_string()).collect()
}

/// Removes the cgroups of test programs that do not run any more.
fn remove_of_the_dead(hierarchy: &Path) {
    for entry in std::fs::read_dir(hierarchy).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let of_program = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split_once('-'));
        if of_program.is_some_and(|(program, _)| !Path::new("/proc").join(program).exists()) {
            remove_tree(&entry.path());
        }
    }
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
