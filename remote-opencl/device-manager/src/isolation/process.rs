//! Starts tenant processes: this same program, bound to the manager's life, with its own limits and an
//! environment that contains only what a runtime needs.

use crate::log::LogArgs;
use crate::process::{Inherited, Terminal, bind_to_parent};
use fpga_vendor::runtime::{ENTERED_VARIABLE, INTEL_FOLDER_VARIABLE, Runtime, TUNABLES_VARIABLE};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use std::ffi::OsStr;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Variables that a tenant process inherits, besides those with a prefix of [`KEPT_PREFIXES`]: the ones that
/// the dynamic linker, the ICD loader, and the C library read. All others may be secrets.
const KEPT: &[&str] = &[
    "PATH",
    "LANG",
    "TZ",
    "LD_LIBRARY_PATH",
    "RUST_BACKTRACE",
    TUNABLES_VARIABLE,
    ENTERED_VARIABLE,
    INTEL_FOLDER_VARIABLE,
    "ALTERAOCLSDKROOT",
    "INTELFPGAOCLSDKROOT",
    "XILINX_XRT",
];
/// Prefixes of the variables that configure runtimes.
const KEPT_PREFIXES: &[&str] =
    &["LC_", "OCL_ICD_", "POCL_", "CL_", "AOCL_", "ACL_", "XCL_", "XRT_", "OMP_", "TBB_", "KMP_"];

/// Memory limits of a tenant process, in bytes.
#[derive(Debug, Clone, Copy)]
pub struct MemoryLimits {
    /// Private writable memory (`RLIMIT_DATA`).
    pub private: u64,
    /// Address space (`RLIMIT_AS`); `None` if unlimited.
    pub address_space: Option<u64>,
}

/// Starts a tenant process whose standard input is the control socket. The calling thread must live as long
/// as the process is to live.
///
/// # Errors
/// The process can't be started.
pub fn start(
    runtime: &Runtime,
    log: &LogArgs,
    folder: &Path,
    control: OwnedFd,
    memory: MemoryLimits,
) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fpga-device-manager").arg("tenant-process");
    command.arg("--runtime").arg(runtime.to_string()).args(log.to_arguments());
    command.env_clear().envs(std::env::vars_os().filter(|(name, _)| is_kept(name)));
    // A runtime caches programs; the cache of one tenant must not serve another.
    for variable in ["TMPDIR", "HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR"] {
        command.env(variable, folder);
    }
    command.stdin(Stdio::from(control));
    bind_to_parent(&mut command, Inherited::none(), Signal::SIGKILL, Terminal::Detached);
    // SAFETY: the closure makes system calls only, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
            setrlimit(Resource::RLIMIT_DATA, memory.private, memory.private)?;
            if let Some(bytes) = memory.address_space {
                setrlimit(Resource::RLIMIT_AS, bytes, bytes)?;
            }
            Ok(())
        });
    }
    command.spawn()
}

fn is_kept(name: &OsStr) -> bool {
    let begins = |prefix: &&str| name.as_encoded_bytes().starts_with(prefix.as_bytes());
    KEPT.iter().any(|kept| name == *kept) || KEPT_PREFIXES.iter().any(begins)
}
