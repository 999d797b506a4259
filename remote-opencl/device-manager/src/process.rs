//! Child processes that never outlive this one, with the signal mask they should have.
//!
//! What Rust's `Command` can't say is set between fork and exec; only async-signal-safe calls are made there.

use nix::errno::Errno;
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{Pid, getpid, getppid, setsid};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Whether a child belongs to the terminal's session, and so gets its signals (Ctrl-C).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// It does, like any program that a shell starts.
    Shared,
    /// It has a session of its own.
    Detached,
}

/// What the process was started with and its program is to have too.
#[derive(Debug, Clone, Copy)]
pub struct Inherited {
    mask: SigSet,
    child_action: SigAction,
}

impl Inherited {
    /// Blocks `signals` in this thread and makes sure that ended children can be waited for; remembers what was before.
    ///
    /// # Errors
    /// The system's.
    pub fn replace_by(signals: &SigSet) -> io::Result<Self> {
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: no handler is installed, only the default disposition.
        let child_action = unsafe { sigaction(Signal::SIGCHLD, &default) }?;
        let mask = signals.thread_swap_mask(nix::sys::signal::SigmaskHow::SIG_BLOCK)?;
        Ok(Self { mask, child_action })
    }

    /// Nothing: no signal is blocked, and ended children can be waited for.
    #[must_use]
    pub fn none() -> Self {
        let child_action = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        Self { mask: SigSet::empty(), child_action }
    }
}

/// Makes `command` start its child with what this process inherited, and end it with `at_parents_end` when the calling
/// thread ends.
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
        // It ended before it could be bound to.
        return Err(Errno::ESRCH);
    }
    // SAFETY: the disposition is one that this process had: default or ignored, as exec leaves no other.
    unsafe { sigaction(Signal::SIGCHLD, &inherited.child_action) }?;
    inherited.mask.thread_set_mask()
}
