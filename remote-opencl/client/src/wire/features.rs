//! What a manager can do beyond version 0.1 of the protocol, as its Welcome says.

use crate::memory::segments::BufferPlacement;
use fpga_protocol::v1;

/// The features of a manager that a session uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ManagerFeatures {
    /// Where buffers can lie.
    pub(crate) buffers: BufferPlacement,
    pub(crate) rects: RectCommands,
    pub(crate) unwatched: UnwatchedCommands,
    pub(crate) traces: Traces,
}

/// Whether a manager has commands on rectangles of bytes. Managers before version 0.2 don't.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RectCommands {
    Known,
    Unknown,
}

/// Whether a manager may be told that nobody waits for a command. Managers before version 0.2 may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnwatchedCommands {
    Known,
    Unknown,
}

/// Whether a manager records the spans of traces. Managers before version 0.2 don't, and others only where they send them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traces {
    Recorded,
    Ignored,
}

impl ManagerFeatures {
    pub(crate) fn of(welcome: &v1::Welcome) -> Self {
        Self {
            buffers: BufferPlacement::of(welcome),
            rects: if welcome.buffer_rects { RectCommands::Known } else { RectCommands::Unknown },
            unwatched: if welcome.unwatched_commands {
                UnwatchedCommands::Known
            } else {
                UnwatchedCommands::Unknown
            },
            traces: if welcome.traces { Traces::Recorded } else { Traces::Ignored },
        }
    }
}
