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

/// The modelled times of a command, in ns of the manager's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// When the command's task got its slots.
    pub granted: u64,
    /// When the command starts.
    pub started: u64,
    /// When the command ends.
    pub ended: u64,
    /// When the command's task ends: the ends of its commands are reported then.
    pub task_ends: u64,
}

impl Span {
    /// The times of the command, which the manager received at `received`; 0 if that is unknown.
    #[must_use]
    pub fn moments(&self, received: u64) -> Moments {
        let queued = if received == 0 { self.granted } else { received.min(self.granted) };
        Moments { queued, submitted: self.granted, started: self.started, ended: self.ended }
    }
}
