//! What a manager can do beyond version 0.1 of the protocol, as its Welcome says.

use crate::memory::segments::BufferPlacement;
use fpga_protocol::v1;

/// Alignments of allocations that a manager can ask for, in bytes.
const USM_ALIGNMENTS: std::ops::RangeInclusive<usize> = 64..=4096;

/// The features of a manager that a session uses.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ManagerFeatures {
    /// Where buffers can lie.
    pub(crate) buffers: BufferPlacement,
    pub(crate) rects: RectCommands,
    pub(crate) unwatched: UnwatchedCommands,
    pub(crate) traces: Traces,
    pub(crate) host_pipes: HostPipes,
    /// Alignment of allocations of unified shared memory in bytes; `None` where there are none.
    pub(crate) usm_alignment: Option<usize>,
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

/// Whether a manager has host pipes. Managers before version 0.2 don't: a call of a host pipe ends their session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostPipes {
    Known,
    Unknown,
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
            usm_alignment: usize::try_from(welcome.usm_alignment)
                .ok()
                .filter(|bytes| bytes.is_power_of_two() && USM_ALIGNMENTS.contains(bytes)),
            traces: if welcome.traces { Traces::Recorded } else { Traces::Ignored },
            host_pipes: if welcome.host_pipes { HostPipes::Known } else { HostPipes::Unknown },
        }
    }
}
