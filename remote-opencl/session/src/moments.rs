//! When a command ran.

use crate::clock;

/// The times of a command on the manager's clock, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    /// The client's call enqueued the command.
    pub queued: u64,
    /// The runtime gave the command to the device.
    pub submitted: u64,
    /// The command started.
    pub started: u64,
    /// The command ended.
    pub ended: u64,
}

impl Moments {
    /// The times of a command that never reached the device: all are now.
    #[must_use]
    pub fn now() -> Self {
        let now = clock::now_ns();
        Self { queued: now, submitted: now, started: now, ended: now }
    }
}
