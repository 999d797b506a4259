//! The memory that this process may use: the least of its cgroups' limits (v2 `memory.max`, v1
//! `memory.limit_in_bytes`) and of the machine's memory.
//!
//! The limit of every cgroup above the process counts as well as that of its own. A container may see only a part of
//! the hierarchy (a cgroup namespace, or a bind mount of its own cgroup); then that part is searched. Kubernetes
//! writes a container's limit there.

use std::fs;
use std::path::{Path, PathBuf};

/// The memory that a process may use, and the source of that limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// The limit in bytes.
    pub bytes: u64,
    /// The source of the limit.
    pub source: LimitSource,
}

/// The source of a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitSource {
    /// A cgroup: the kernel kills a process that uses more.
    Cgroup,
    /// The machine's memory, which other processes use as well.
    Machine,
}

/// The two layouts of cgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// A mounted hierarchy of cgroups.
#[derive(Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    /// The cgroup that the mount point shows.
    root: PathBuf,
    /// The mount point.
    point: PathBuf,
}

impl MemoryLimit {
    /// The current limit of this process; `None` if /proc shows neither a cgroup's limit nor the machine's memory.
    #[must_use]
    pub fn of_this_process() -> Option<Self> {
        Self::below(Path::new("/"))
    }

    /// Like [`Self::of_this_process`], with `root` in place of `/`.
    fn below(root: &Path) -> Option<Self> {
        let machine = machine_memory(root);
        let cgroup = cgroup_limit(root);
        match (cgroup, machine) {
            // Cgroup v1 writes "no limit" as the greatest multiple of a page, which exceeds any machine's memory.
            (Some(bytes), Some(machine)) if bytes >= machine => {
                Some(Self { bytes: machine, source: LimitSource::Machine })
            }
            (Some(bytes), _) => Some(Self { bytes, source: LimitSource::Cgroup }),
            (None, Some(bytes)) => Some(Self { bytes, source: LimitSource::Machine }),
            (None, None) => None,
        }
    }
}

impl Version {
    fn limit_file(self) -> &'static str {
        match self {
            Self::V1 => "memory.limit_in_bytes",
            Self::V2 => "memory.max",
        }
    }
}

/// `MemTotal` of /proc/meminfo.
fn machine_memory(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/meminfo")).ok()?;
    let kib = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix("kB")?;
    kib.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The least limit among the cgroups of this process and above it that are visible here.
fn cgroup_limit(root: &Path) -> Option<u64> {
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).ok()?;
    let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let limits = mounts.lines().filter_map(Mount::of_line).filter_map(|mount| {
        let own = cgroups.lines().find_map(|line| own_cgroup(line, mount.version))?;
        mount.least_limit(root, own)
    });
    limits.min()
}

/// The cgroup that a line of /proc/self/cgroup (`ID:CONTROLLERS:PATH`) names for memory.
fn own_cgroup(line: &str, version: Version) -> Option<&Path> {
    let mut fields = line.splitn(3, ':');
    let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let is_it = match version {
        Version::V1 => controllers.split(',').any(|controller| controller == "memory"),
        Version::V2 => id == "0" && controllers.is_empty(),
    };
    is_it.then(|| Path::new(path))
}

impl Mount {
    /// The hierarchy that a line of /proc/self/mountinfo mounts, if it can limit memory: `ID PARENT DEVICE ROOT POINT
    /// OPTIONS [FIELDS] - TYPE SOURCE SUPER-OPTIONS`.
    fn of_line(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut system = system.split(' ');
        let version = match (system.next()?, system.nth(1)) {
            ("cgroup2", _) => Version::V2,
            ("cgroup", Some(options)) if options.split(',').any(|option| option == "memory") => Version::V1,
            _ => return None,
        };
        Some(Self { version, root: root.into(), point: point.into() })
    }

    /// The least limit from the cgroup `own` up to the mount's own.
    fn least_limit(&self, root: &Path, own: &Path) -> Option<u64> {
        // A cgroup outside the mount's is not visible here; the cgroup at the mount point is the nearest to it.
        let inside = own.strip_prefix(&self.root).unwrap_or(Path::new(""));
        let point = root.join(self.point.strip_prefix("/").unwrap_or(&self.point));
        let limit = |folder: &Path| {
            let text = fs::read_to_string(point.join(folder).join(self.version.limit_file())).ok()?;
            // `max` does not parse as a number and means no limit.
            text.trim().parse().ok()
        };
        inside.ancestors().filter_map(limit).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const MACHINE: &str = "MemTotal:       16384000 kB\nMemFree:        1 kB\n";

    /// The limit on a machine with these files under `/`.
    fn limit(files: &[(&str, &str)]) -> Option<MemoryLimit> {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        MemoryLimit::below(dir.path())
    }

    fn cgroup(bytes: u64) -> Option<MemoryLimit> {
        Some(MemoryLimit { bytes, source: LimitSource::Cgroup })
    }

    #[test]
    fn a_container_in_a_cgroup_namespace_has_its_own_limit() {
        let files = [
            ("proc/meminfo", MACHINE),
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "536870912\n"),
        ];
        assert_eq!(limit(&files), cgroup(512 * MIB));
    }

    #[test]
    fn a_limit_above_counts_where_it_is_less_than_the_own_one() {
        let files = [
            ("proc/meminfo", MACHINE),
            ("proc/self/mountinfo", V2),
            ("proc/self/cgroup", "0::/kubepods/pod1/c1\n"),
            ("sys/fs/cgroup/kubepods/memory.max", "max\n"),
            ("sys/fs/cgroup/kubepods/pod1/memory.max", "134217728\n"),
            ("sys/fs/cgroup/kubepods/pod1/c1/memory.max", "268435456\n"),
            ("sys/fs/cgroup/kubepods/pod1/c2/memory.max", "1048576\n"),
        ];
        assert_eq!(limit(&files), cgroup(128 * MIB));
    }

    #[test]
    fn version_one_is_read_where_the_container_sees_only_its_own_cgroup() {
        let mounts = "33 28 0:30 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n\
                      34 28 0:31 /docker/abc /sys/fs/cgroup/memory ro,nosuid - cgroup cgroup rw,memory\n";
        for own in ["/docker/abc", "/docker/abc/inner", "/elsewhere"] {
            let cgroups = format!("5:cpu,cpuacct:/docker/abc\n4:memory:{own}\n0::/\n");
            let files = [
                ("proc/meminfo", MACHINE),
                ("proc/self/mountinfo", mounts),
                ("proc/self/cgroup", &cgroups),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "67108864\n"),
                ("sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "9223372036854771712\n"),
            ];
            assert_eq!(limit(&files), cgroup(64 * MIB), "{own}");
        }
    }

    #[test]
    fn where_both_versions_are_mounted_the_one_that_limits_counts() {
        let mounts = "34 28 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      42 28 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let files = [
            ("proc/meminfo", MACHINE),
            ("proc/self/mountinfo", mounts),
            ("proc/self/cgroup", "4:memory:/system.slice\n0::/system.slice\n"),
            ("sys/fs/cgroup/memory/system.slice/memory.limit_in_bytes", "33554432\n"),
        ];
        assert_eq!(limit(&files), cgroup(32 * MIB));
    }

    #[test]
    fn without_a_cgroups_limit_it_is_the_machines_memory() {
        let machine = Some(MemoryLimit { bytes: 16_384_000 * 1024, source: LimitSource::Machine });
        for unlimited in ["max\n", "9223372036854771712\n", "nonsense", ""] {
            let files = [
                ("proc/meminfo", MACHINE),
                ("proc/self/mountinfo", V2),
                ("proc/self/cgroup", "0::/\n"),
                ("sys/fs/cgroup/memory.max", unlimited),
            ];
            assert_eq!(limit(&files), machine, "{unlimited:?}");
        }
        assert_eq!(limit(&[("proc/meminfo", MACHINE)]), machine);
        assert_eq!(limit(&[]), None);
    }

    #[test]
    fn this_process_has_a_limit() {
        let limit = MemoryLimit::of_this_process().unwrap();
        assert!(limit.bytes > MIB, "{limit:?}");
    }
}
