//! The private manager: `serve` of this same binary as a child, with an environment of its own.

use crate::config::SharedMemory;
use crate::process::{Inherited, Terminal, bind_to_parent};
use anyhow::Context as _;
use nix::fcntl::OFlag;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, pipe2};
use std::ffi::OsString;
use std::fs::File;
use std::num::NonZeroU32;
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Settings of the private manager.
#[derive(Debug)]
pub struct Settings {
    pub runtime: OsString,
    pub tcp: bool,
    pub slots: NonZeroU32,
    pub reconfiguration_time: Duration,
    pub source_as_bitstream: bool,
    pub shared_memory: SharedMemory,
    pub log: String,
    pub inherited: Inherited,
}

/// The manager's process. Dropping the value ends it at once.
#[derive(Debug)]
pub struct Manager {
    child: Child,
    ended: bool,
    /// The pipe over which the manager sends its addresses when it is ready.
    pub(super) ready: File,
}

impl Manager {
    /// Starts the manager.
    ///
    /// # Errors
    /// The pipe or the process can't be made.
    pub fn start(settings: &Settings, folder: &Path) -> anyhow::Result<Self> {
        // The writing end is inherited by the child, so it must not close on exec; it is closed here right after.
        let (ready, ready_of_child) = pipe2(OFlag::empty()).context("cannot make a pipe")?;
        nix::fcntl::fcntl(&ready, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC))
            .context("cannot set up a pipe")?;
        let listen = if settings.tcp {
            OsString::from("tcp://127.0.0.1:0")
        } else {
            let mut address = OsString::from("unix:");
            address.push(folder.join("dm.sock"));
            address
        };
        let mut command = Command::new("/proc/self/exe");
        for (name, _) in std::env::vars_os() {
            // Settings of the caller's other managers. The location of Intel's runtimes is kept, since it is
            // not a setting.
            let ours = name.as_encoded_bytes().starts_with(b"FPGA_");
            if ours && name != fpga_vendor::runtime::INTEL_FOLDER_VARIABLE {
                command.env_remove(&name);
            }
        }
        // Preloaded libraries are meant for the program, and may be the drop-in library.
        command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH");
        command
            .arg("serve")
            .arg("--listen")
            .arg(listen)
            .arg("--runtime")
            .arg(&settings.runtime)
            .args(["--slots", &settings.slots.to_string()])
            .args(["--reconfiguration-time", &format!("{}us", settings.reconfiguration_time.as_micros())])
            .args(["--ready-file", &format!("/dev/fd/{}", ready_of_child.as_raw_fd())])
            .args(["--log", &settings.log])
            // The manager runs for the program's own user, so sources may include what they could include
            // natively.
            .args(["--confine-builds", "off"])
            // Tasks that the program has left running end with it.
            .args(["--drain-timeout", "0s"])
            .arg("--own-folder")
            .arg(folder)
            .stdin(Stdio::null());
        if settings.tcp {
            command.arg("--insecure-tcp");
        }
        if settings.shared_memory == SharedMemory::Off {
            command.args(["--shared-memory", "off"]);
        }
        if settings.source_as_bitstream {
            command.arg("--source-as-bitstream");
        }
        bind_to_parent(&mut command, settings.inherited, Signal::SIGTERM, Terminal::Detached);
        let child = command.spawn().context("cannot start the private manager")?;
        drop(ready_of_child);
        Ok(Self { child, ended: false, ready: File::from(ready) })
    }

    /// Whether the manager has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        if !self.ended {
            self.ended = matches!(self.child.try_wait(), Ok(Some(_)) | Err(_));
        }
        self.ended
    }

    /// Asks the manager to end in order.
    pub(super) fn terminate(&mut self) {
        if !self.has_ended() {
            // The child has not been waited for, so its id is not reused yet.
            let _ = kill(self.pid(), Signal::SIGTERM);
        }
    }

    /// Ends the manager at once.
    pub(super) fn kill(&mut self) {
        if !self.has_ended() {
            // Neither call can fail for a child that has not been waited for.
            let _ = self.child.kill();
            let _ = self.child.wait();
            self.ended = true;
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.child.id()).unwrap_or(i32::MAX))
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.kill();
    }
}
