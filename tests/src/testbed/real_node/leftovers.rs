//! What nodes leave on this machine when their end went wrong.

use super::cgroup;

/// The cgroups of the nodes that the program with this id started, and mounts of nodes.
#[must_use]
pub fn leftovers(program: u32) -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mounts = mounts.lines().filter(|line| line.contains("/nodes/")).map(str::to_owned);
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    let cgroups = hierarchies.flat_map(|hierarchy| cgroup::of_program(&hierarchy.path(), program));
    mounts.chain(cgroups).collect()
}
