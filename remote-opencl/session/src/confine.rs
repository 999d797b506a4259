//! Confines builds so that they cannot read the manager's files. A source belongs to a tenant: with
//! `#include "/etc/passwd"` or `-I /run/secrets` it would copy files into the build's log.
//!
//! Each build has a thread of its own. Before it calls the vendor, the thread gives up all files except the
//! runtime's (with Landlock, which needs no privileges and covers only this thread and the ones it starts). A
//! source can then include files of the runtime's packages and files that the client sent (`includes.rs`).
//! The confinement does not stop a hostile source from what a compiler can do in memory.

use fpga_vendor::runtime::Runtime;
use nix::fcntl::{OFlag, open};
use nix::sys::stat::{Mode, fstat};
use serde::{Deserialize, Serialize};
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether builds are confined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
pub enum ConfineBuilds {
    /// Always: the manager does not start if the kernel can't.
    Required,
    /// If the kernel can; otherwise the manager warns that sources can read its files.
    Wanted,
    /// Never: sources can include the manager's files, as in a native program, but not the client's.
    Off,
}

/// The files that a build may open. Clones share the rules.
#[derive(Debug, Clone)]
pub struct Confinement {
    /// The rules; `None` if builds are not confined.
    rules: Option<Arc<Rules>>,
}

#[derive(Debug)]
struct Rules {
    set: OwnedFd,
    /// Open descriptors of the paths. A rule applies to the file that a path named when the rule was made,
    /// and the kernel makes files such as `/proc/self/maps` anew unless a descriptor keeps them.
    _held: Vec<OwnedFd>,
}

/// Folders in which runtimes have their libraries, headers and tools. Missing folders are skipped.
const RUNTIME_FOLDERS: &[&str] = &[
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/usr/local/lib64",
    "/usr/libexec",
    "/usr/share/pocl",
    "/usr/local/share/pocl",
    "/bin",
    "/usr/bin",
    "/etc/ld.so.cache",
    "/opt/intel",
    "/opt/xilinx",
];

/// Intel's runtimes read the memory map of the process at each build, to find their own location. A source
/// that includes it learns addresses, which a kernel on such a runtime can find out anyway.
const MEMORY_MAP: &str = "/proc/self/maps";

/// Information of the kernel on the machine and on the process itself.
const OF_MACHINE: &[&str] = &["/sys/devices", "/sys/fs/cgroup", "/proc", "/etc/OpenCL"];

/// Files that hold no secret and are open to all; some runtimes read them.
const HARMLESS_FILES: &[&str] = &["/dev/null", "/dev/zero", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo"];

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
/// All rights of Landlock's first version: the four above, and removing and making files of each kind.
const ALL_OF_FIRST: u64 = (1 << 13) - 1;
/// Moving a file to another folder; since version 2.
const REFER: u64 = 1 << 13;

/// Listening on TCP sockets and connecting them; since version 4.
const BIND_TCP: u64 = 1;
const CONNECT_TCP: u64 = 1 << 1;
/// Connecting to abstract unix sockets of other processes, and signalling them; since version 6.
const ABSTRACT_SOCKETS: u64 = 1;
const SIGNALS: u64 = 1 << 1;

/// `struct landlock_ruleset_attr`.
#[repr(C)]
struct RulesetAttributes {
    files: u64,
    connections: u64,
    scoped: u64,
}

/// `struct landlock_path_beneath_attr`.
#[repr(C, packed)]
struct PathBeneath {
    allowed_access: u64,
    parent_fd: i32,
}

impl Confinement {
    /// No confinement.
    #[must_use]
    pub fn off() -> Self {
        Self { rules: None }
    }

    /// The confinement of this runtime's builds as far as `wanted` says, with a warning where the kernel has none.
    ///
    /// # Errors
    /// The kernel has no confinement, or refuses, and `wanted` is [`ConfineBuilds::Required`].
    pub fn wanted(wanted: ConfineBuilds, runtime: &Runtime, includes: &Path) -> io::Result<Self> {
        if wanted == ConfineBuilds::Off {
            return Ok(Self::off());
        }
        Self::of(runtime, includes).or_else(|error| {
            if wanted == ConfineBuilds::Required {
                return Err(error);
            }
            tracing::warn!(%error, "The kernel has no Landlock: sources can include files that the manager can read");
            Ok(Self::off())
        })
    }

    /// The confinement of this runtime's builds. Builds may read a file in `includes` if they know its name.
    ///
    /// # Errors
    /// The kernel has no Landlock, or refuses the rules.
    pub fn of(runtime: &Runtime, includes: &Path) -> io::Result<Self> {
        let version = version()?;
        let all = if version >= 2 { ALL_OF_FIRST | REFER } else { ALL_OF_FIRST };
        let rules = create(&RulesetAttributes { files: all, connections: 0, scoped: 0 })?;
        let mut held = Vec::new();
        let read = EXECUTE | READ_FILE | READ_DIR;
        for path in RUNTIME_FOLDERS.iter().map(PathBuf::from).chain(runtime.folders()) {
            allow(&rules, &path, read, all)?;
        }
        for path in HARMLESS_FILES {
            allow(&rules, Path::new(path), READ_FILE | WRITE_FILE, all)?;
        }
        allow(&rules, includes, READ_FILE, all)?;
        // PoCL writes to its cache during builds.
        for cache in pocl_caches() {
            if std::fs::create_dir_all(&cache).is_ok() {
                allow(&rules, &cache, all, all)?;
            }
        }
        if runtime.vendor() != "pocl" {
            held.extend(allow(&rules, Path::new(MEMORY_MAP), READ_FILE, all)?);
        }
        Ok(Self { rules: Some(Arc::new(Rules { set: rules, _held: held })) })
    }

    /// The confinement of a tenant process: the runtime's files, information on the machine, the folder of
    /// bitstreams (which is common to all tenants), and a folder of its own to write to. As far as the
    /// version of Landlock allows, the process can connect to no address and signal no other process.
    ///
    /// # Errors
    /// The kernel has no Landlock, or refuses the rules.
    pub fn of_tenant(runtime: &Runtime, own: &Path, bitstreams: Option<&Path>) -> io::Result<Self> {
        let version = version()?;
        let all = if version >= 2 { ALL_OF_FIRST | REFER } else { ALL_OF_FIRST };
        let attributes = RulesetAttributes {
            files: all,
            connections: if version >= 4 { BIND_TCP | CONNECT_TCP } else { 0 },
            scoped: if version >= 6 { ABSTRACT_SOCKETS | SIGNALS } else { 0 },
        };
        let rules = create(&attributes)?;
        let read = EXECUTE | READ_FILE | READ_DIR;
        let folders = RUNTIME_FOLDERS.iter().chain(OF_MACHINE).map(PathBuf::from).chain(runtime.folders());
        for path in folders {
            allow(&rules, &path, read, all)?;
        }
        for path in HARMLESS_FILES {
            allow(&rules, Path::new(path), READ_FILE | WRITE_FILE, all)?;
        }
        if let Some(bitstreams) = bitstreams {
            allow(&rules, bitstreams, READ_FILE | READ_DIR, all)?;
        }
        // A tenant must not execute the files that it writes.
        allow(&rules, own, all & !EXECUTE, all)?;
        Ok(Self { rules: Some(Arc::new(Rules { set: rules, _held: Vec::new() })) })
    }

    /// Gives up all other files, for this thread and the ones it starts, until it ends.
    ///
    /// # Errors
    /// The kernel refuses; the build must not run then.
    pub fn enter(&self) -> io::Result<()> {
        let Some(rules) = &self.rules else { return Ok(()) };
        // SAFETY: the call takes numbers only; the flag applies to this thread and its children.
        if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is that of a ruleset and stays open during the call.
        let restricted =
            unsafe { libc::syscall(libc::SYS_landlock_restrict_self, rules.set.as_raw_fd(), 0_u32) };
        if restricted == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

/// Whether this kernel has Landlock.
///
/// # Errors
/// The kernel has no Landlock, or it is disabled.
pub fn is_there() -> io::Result<()> {
    version().map(|_| ())
}

/// Gives up all capabilities of the calling thread and of the threads it starts. A manager that runs as root
/// has them.
///
/// # Errors
/// The kernel refuses.
pub fn drop_capabilities() -> io::Result<()> {
    /// `struct __user_cap_header_struct`.
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let header = Header { version: VERSION_3, pid: 0 };
    // Effective, permitted and inheritable capabilities, 32 bits each, twice.
    let none = [0_u32; 6];
    // SAFETY: the kernel reads both during the call; the layouts are the kernel's.
    let dropped = unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) };
    if dropped == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The cache of PoCL; the first variable that is set decides.
fn pocl_caches() -> Vec<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let cache = variable("POCL_CACHE_DIR")
        .or_else(|| variable("XDG_CACHE_HOME").map(|folder| folder.join("pocl/kcache")))
        .or_else(|| variable("HOME").map(|home| home.join(".cache/pocl/kcache")))
        .unwrap_or_else(|| PathBuf::from("/tmp/pocl/kcache"));
    vec![cache]
}

fn version() -> io::Result<i64> {
    const VERSION: u32 = 1;
    // SAFETY: with this flag the call takes no structure.
    let version = unsafe {
        libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u64>(), 0_usize, VERSION)
    };
    if version < 1 { Err(io::Error::last_os_error()) } else { Ok(version) }
}

fn create(attributes: &RulesetAttributes) -> io::Result<OwnedFd> {
    // SAFETY: the structure has the kernel's layout. An older kernel accepts a longer structure if the fields
    // that it does not know are 0.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            &raw const *attributes,
            size_of::<RulesetAttributes>(),
            0_u32,
        )
    };
    match i32::try_from(fd) {
        // SAFETY: the kernel has just made the descriptor, with close-on-exec, and nothing else owns it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Allows `access` at and below `path`. Returns a descriptor of the path, or `None` if it does not exist.
fn allow(rules: &OwnedFd, path: &Path, access: u64, all: u64) -> io::Result<Option<OwnedFd>> {
    const PATH_BENEATH: u32 = 1;
    let Ok(target) = open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()) else { return Ok(None) };
    let is_folder = fstat(&target)?.st_mode & libc::S_IFMT == libc::S_IFDIR;
    let of_file = EXECUTE | WRITE_FILE | READ_FILE;
    let allowed_access = if is_folder { access & all } else { access & of_file };
    let rule = PathBeneath { allowed_access, parent_fd: target.as_raw_fd() };
    // SAFETY: both descriptors are open; the structure has the kernel's layout and lives during the call.
    let added = unsafe {
        libc::syscall(libc::SYS_landlock_add_rule, rules.as_raw_fd(), PATH_BENEATH, &raw const rule, 0_u32)
    };
    if added == 0 { Ok(Some(target)) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_reads_the_runtimes_files_alone_and_others_read_on() {
        if version().is_err() {
            // Without Landlock there is nothing to test.
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, "x").unwrap();
        let includes = tempfile::tempdir().unwrap();
        let header = includes.path().join("deep/header.h");
        std::fs::create_dir(header.parent().unwrap()).unwrap();
        std::fs::write(&header, "y").unwrap();
        let confinement = Confinement::of(&Runtime::Pocl, includes.path()).unwrap();
        let of_thread = secret.clone();
        std::thread::spawn(move || {
            assert!(std::fs::read(&of_thread).is_ok());
            confinement.enter().unwrap();
            let denied =
                |path: &Path| std::fs::read(path).unwrap_err().kind() == io::ErrorKind::PermissionDenied;
            assert!(denied(&of_thread) && denied(Path::new("/etc/passwd")));
            assert!(denied(Path::new("/proc/self/environ")));
            assert!(std::fs::read_dir("/usr/lib").is_ok());
            assert_eq!(std::fs::read(&header).unwrap(), b"y");
            assert!(std::fs::read_dir(header.parent().unwrap()).is_err(), "only who knows the name");
            assert!(std::fs::write(&header, "z").is_err());
            assert!(std::fs::write(of_thread.with_extension("new"), "x").is_err());
        })
        .join()
        .unwrap();
        assert!(std::fs::read(&secret).is_ok());
    }
}
