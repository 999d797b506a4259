//! Confines builds so that they cannot read the manager's files. A source belongs to a tenant: with
//! `#include "/etc/passwd"` or `-I /run/secrets` it would copy files into the build's log.
//!
//! Each build has a thread of its own. Before it calls the vendor, the thread gives up all files except the
//! runtime's (with Landlock, which needs no privileges and covers only this thread and the ones it starts). A
//! source can then include files of the runtime's packages and files that the client sent (`includes.rs`).
//! The confinement does not stop a hostile source from what a compiler can do in memory.

use fpga_vendor::runtime::Runtime;
use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
    make_bitflags,
};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Whether builds, and with --isolate process tenants' processes, are confined.
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
    set: RulesetCreated,
    /// Open descriptors of the paths. A rule applies to the file that a path named when the rule was made,
    /// and the kernel makes files such as `/proc/self/maps` anew unless a descriptor keeps them.
    _held: Vec<PathFd>,
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

/// Reading and executing files, and listing folders.
const READ: BitFlags<AccessFs> = make_bitflags!(AccessFs::{Execute | ReadFile | ReadDir});
const READ_FILES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile});
const READ_AND_WRITE_FILES: BitFlags<AccessFs> = make_bitflags!(AccessFs::{ReadFile | WriteFile});

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
        let mut rules = files()?.create().map_err(io::Error::other)?;
        let mut held = Vec::new();
        for path in RUNTIME_FOLDERS.iter().map(PathBuf::from).chain(runtime.folders()) {
            allow(&mut rules, &path, READ)?;
        }
        for path in HARMLESS_FILES {
            allow(&mut rules, Path::new(path), READ_AND_WRITE_FILES)?;
        }
        allow(&mut rules, includes, READ_FILES)?;
        // PoCL writes to its cache during builds.
        for cache in pocl_caches() {
            if std::fs::create_dir_all(&cache).is_ok() {
                allow(&mut rules, &cache, all())?;
            }
        }
        if runtime.vendor() != "pocl" {
            held.extend(allow(&mut rules, Path::new(MEMORY_MAP), READ_FILES)?);
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
        // Older versions of Landlock restrict no connections and no signals.
        let rules = files()?.handle_access(AccessNet::from_all(ABI::V4)).map_err(io::Error::other)?;
        let rules = rules.scope(Scope::from_all(ABI::V6)).map_err(io::Error::other)?;
        let mut rules = rules.create().map_err(io::Error::other)?;
        let folders = RUNTIME_FOLDERS.iter().chain(OF_MACHINE).map(PathBuf::from).chain(runtime.folders());
        for path in folders {
            allow(&mut rules, &path, READ)?;
        }
        for path in HARMLESS_FILES {
            allow(&mut rules, Path::new(path), READ_AND_WRITE_FILES)?;
        }
        if let Some(bitstreams) = bitstreams {
            allow(&mut rules, bitstreams, READ & !BitFlags::from(AccessFs::Execute))?;
        }
        // A tenant must not execute the files that it writes.
        allow(&mut rules, own, all() & !BitFlags::from(AccessFs::Execute))?;
        Ok(Self { rules: Some(Arc::new(Rules { set: rules, _held: Vec::new() })) })
    }

    /// Gives up all other files, for this thread and the ones it starts, until it ends.
    ///
    /// # Errors
    /// The kernel refuses; the build must not run then.
    pub fn enter(&self) -> io::Result<()> {
        let Some(rules) = &self.rules else { return Ok(()) };
        let rules = rules.set.try_clone()?;
        let status = rules.restrict_self().map_err(io::Error::other)?;
        if status.ruleset == RulesetStatus::NotEnforced {
            return Err(io::Error::other("the kernel does not enforce Landlock's rules"));
        }
        Ok(())
    }
}

/// Whether this kernel has Landlock.
///
/// # Errors
/// The kernel has no Landlock, or it is disabled.
pub fn is_there() -> io::Result<()> {
    files()?.create().map(|_| ()).map_err(io::Error::other)
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

/// All rights to files and folders that the rules govern.
fn all() -> BitFlags<AccessFs> {
    AccessFs::from_all(ABI::V2)
}

/// Rules that take away all rights to files, as far as the kernel's version of Landlock knows them.
///
/// # Errors
/// The kernel has no Landlock, or it is disabled.
fn files() -> io::Result<Ruleset> {
    let first = AccessFs::from_all(ABI::V1);
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(first);
    let rules = rules.map(|rules| rules.set_compatibility(CompatLevel::BestEffort));
    rules.and_then(|rules| rules.handle_access(all())).map_err(io::Error::other)
}

/// Allows `access` at and below `path`. Returns a descriptor of the path, or `None` if it does not exist.
fn allow(rules: &mut RulesetCreated, path: &Path, access: BitFlags<AccessFs>) -> io::Result<Option<PathFd>> {
    let Ok(target) = PathFd::new(path) else { return Ok(None) };
    let added: Result<_, RulesetError> = rules.add_rule(PathBeneath::new(&target, access)).map(|_| ());
    added.map(|()| Some(target)).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_confined_thread_reads_the_runtimes_files_alone_and_others_read_on() {
        if is_there().is_err() {
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
