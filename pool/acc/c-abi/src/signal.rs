//! A descriptor that is readable when a future can go on.

use crate::code::ACC_E_SYSTEM;
use fpga_foreign_process::ClosedInChildren;
use fpga_foreign_process::c_boundary::Failure;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::sync::Arc;
use std::task::Wake;
use std::time::{Duration, Instant};

/// The waker of a handle's futures.
#[derive(Debug)]
pub struct Signal {
    // Dropped before the descriptor.
    _closed_in_children: ClosedInChildren,
    event: File,
}

impl Signal {
    /// A descriptor that is not readable.
    pub fn new() -> Result<Arc<Self>, Failure> {
        // SAFETY: the call takes no memory.
        let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        let event = Errno::result(event)
            .map_err(|errno| Failure::new(ACC_E_SYSTEM, format!("there is no descriptor: {errno}")))?;
        // SAFETY: the descriptor was just opened, and nobody else has it.
        let event = File::from(unsafe { OwnedFd::from_raw_fd(event) });
        // SAFETY: in a forked child no function uses the parent's handles.
        let closed_in_children = unsafe { ClosedInChildren::register(event.as_fd()) };
        Ok(Arc::new(Self { _closed_in_children: closed_in_children, event }))
    }

    /// The descriptor's number.
    pub fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Makes the descriptor not readable. Call it before futures are polled: what wakes them later is seen.
    pub fn clear(&self) {
        // Nothing to read is no error.
        let _ = (&self.event).read(&mut [0; 8]);
    }

    /// Waits until the descriptor is readable, at most until the deadline. Returns false after the deadline.
    pub fn wait(&self, deadline: Deadline) -> bool {
        loop {
            let timeout = match deadline {
                Deadline::Never => PollTimeout::NONE,
                Deadline::At(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return false;
                    }
                    // Rounded up, so that the last wait does not spin.
                    let millis = left.as_micros().div_ceil(1_000);
                    PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX)
                }
            };
            let mut descriptors = [PollFd::new(self.event.as_fd(), PollFlags::POLLIN)];
            // An interrupted or failed poll is tried again: the deadline bounds it.
            if poll(&mut descriptors, timeout).is_ok_and(|ready| ready > 0) {
                return true;
            }
        }
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // A full counter is readable as well.
        let _ = (&self.event).write(&1_u64.to_ne_bytes());
    }
}

/// Until when a call waits.
#[derive(Debug, Clone, Copy)]
pub enum Deadline {
    /// Without a limit.
    Never,
    /// Until this moment.
    At(Instant),
}

impl Deadline {
    /// The deadline of a timeout in milliseconds; a negative one has none.
    pub fn after(timeout_ms: i64) -> Self {
        let Ok(millis) = u64::try_from(timeout_ms) else { return Self::Never };
        Instant::now().checked_add(Duration::from_millis(millis)).map_or(Self::Never, Self::At)
    }

    /// The time that is left; `None` without a limit.
    pub fn left(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::At(at) => Some(at.saturating_duration_since(Instant::now())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_seen_once_and_a_wait_ends_at_its_deadline() {
        let signal = Signal::new().unwrap();
        assert!(!signal.wait(Deadline::after(0)) && !signal.wait(Deadline::after(5)));
        let waking = Arc::clone(&signal);
        let thread = std::thread::spawn(move || {
            waking.wake_by_ref();
            waking.wake();
        });
        assert!(signal.wait(Deadline::Never));
        thread.join().unwrap();
        signal.clear();
        assert!(!signal.wait(Deadline::after(0)));
        signal.wake_by_ref();
        assert!(signal.wait(Deadline::after(1_000)));
    }
}
