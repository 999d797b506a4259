//! Starting a tenant process: this same program, bound to the manager, with bounds of its own and nothing of the
//! manager's settings.

use crate::log::LogArgs;
use crate::process::{Inherited, Terminal, bind_to_parent};
use crate::runtime::{INTEL_FOLDER_VARIABLE, Runtime};
use nix::sys::resource::{Resource, setrlimit};
use nix::sys::signal::Signal;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Starts it; call it from a thread that lives as long as the process is to. The control socket is its standard input.
///
/// # Errors
/// The system's.
pub fn start(
    runtime: &Runtime,
    log: &LogArgs,
    folder: &Path,
    control: OwnedFd,
    memory_limit: Option<u64>,
) -> io::Result<Child> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fpga-device-manager").arg("tenant-process");
    command.arg("--runtime").arg(runtime.to_string()).args(log.to_arguments());
    for (name, _) in std::env::vars_os() {
        // Tokens and addresses may be among them.
        if name.as_encoded_bytes().starts_with(b"FPGA_") && name != INTEL_FOLDER_VARIABLE {
            command.env_remove(&name);
        }
    }
    // What a runtime keeps of one tenant's programs is no other tenant's.
    for variable in ["TMPDIR", "HOME", "XDG_CACHE_HOME", "POCL_CACHE_DIR"] {
        command.env(variable, folder);
    }
    command.stdin(Stdio::from(control));
    bind_to_parent(&mut command, Inherited::none(), Signal::SIGKILL, Terminal::Detached);
    // SAFETY: the closure makes system calls only, which are async-signal-safe, and allocates nothing.
    unsafe {
        command.pre_exec(move || {
            setrlimit(Resource::RLIMIT_CORE, 0, 0)?;
            if let Some(bytes) = memory_limit {
                setrlimit(Resource::RLIMIT_AS, bytes, bytes)?;
            }
            Ok(())
        });
    }
    command.spawn()
}
