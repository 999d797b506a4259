//! Child processes that end with this one, and start with the right signal mask; and what the kernel tells of a process.
//!
//! Settings that `Command` does not offer are made between fork and exec, by async-signal-safe calls only.

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Pid, getpid, getppid, setsid};
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Whether a child belongs to the terminal's session, and so gets its signals (Ctrl-C).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// The child belongs to the terminal's session, like any program that a shell starts.
    Shared,
    /// The child has a session of its own.
    Detached,
}

/// The signal settings with which this process started, for its children.
#[derive(Debug, Clone, Copy)]
pub struct Inherited {
    mask: SigSet,
    child_action: SigAction,
}

impl Inherited {
    /// Blocks `signals` in this thread and resets SIGCHLD, so that ended children can be waited for. Returns the
    /// settings from before.
    ///
    /// # Errors
    /// The system's error.
    pub fn replace_by(signals: &SigSet) -> io::Result<Self> {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: no handler is installed, only the default disposition.
        let child_action = unsafe { sigaction(Signal::SIGCHLD, &default) }?;
        let mask = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        Ok(Self { mask, child_action })
    }

    /// Default settings: no signal is blocked, and ended children can be waited for.
    #[must_use]
    pub fn none() -> Self {
        let child_action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        Self { mask: SigSet::empty(), child_action }
    }
}

/// Makes `command` start its child with the `inherited` settings. The child gets the signal `at_parents_end` when
/// the thread that spawns it ends.
pub fn bind_to_parent(
    command: &mut Command,
    inherited: Inherited,
    at_parents_end: Signal,
    terminal: Terminal,
) {
    let parent = getpid();
    // SAFETY: the closure makes system calls only, all of them async-signal-safe, and allocates nothing.
    unsafe {
        command
            .pre_exec(move || prepare(parent, &inherited, at_parents_end, terminal).map_err(io::Error::from))
    };
}

/// A field of `/proc/PID/stat`, by its place after the process's name: 0 is the state.
///
/// # Errors
/// No process has this id, or the kernel does not tell the field.
pub fn stat_field(pid: u32, place: usize) -> io::Result<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name of the process stands in parentheses and may contain any character.
    let field = stat.rsplit_once(") ").and_then(|(_, fields)| fields.split(' ').nth(place));
    field.map(str::to_owned).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn prepare(
    parent: Pid,
    inherited: &Inherited,
    at_parents_end: Signal,
    terminal: Terminal,
) -> Result<(), Errno> {
    if terminal == Terminal::Detached {
        setsid()?;
    }
    set_pdeathsig(at_parents_end)?;
    if getppid() != parent {
        // The parent ended before the death signal was set.
        return Err(Errno::ESRCH);
    }
    // SAFETY: the disposition is one that this process had: default or ignored, as exec leaves no other.
    unsafe { sigaction(Signal::SIGCHLD, &inherited.child_action) }?;
    inherited.mask.thread_set_mask()
}
