//! What a session tells its client about commands.

use crate::dependencies::{Cause, EventId, Failed};
use crate::governor::Hold;
use crate::moments::Moments;
use bytes::Bytes;
use std::sync::Arc;

/// A message to the client about a command. The order of reports is the order of the messages.
#[derive(Debug)]
pub enum Report {
    /// A piece of the result of a read that has not ended.
    Piece {
        /// Event of the read.
        event: EventId,
        /// Length of the whole result, in bytes.
        length: u64,
        /// Offset of the piece.
        offset: u64,
        /// Bytes of the piece.
        data: Bytes,
        /// The governor's hold for the bytes.
        hold: Arc<Hold>,
    },
    /// What kernels have printed.
    Printed(Bytes),
    /// A command has ended.
    Ended(Ended),
}

/// The result of a read.
#[derive(Debug)]
pub enum Got {
    /// A short result, in full.
    Bytes(Bytes),
    /// The length of a result that has been reported in pieces.
    Pieces(u64),
}

/// A command that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Event of the command.
    pub event: EventId,
    /// 0 or the error code.
    pub status: i32,
    /// Times of the command, if they are measured.
    pub moments: Option<Moments>,
    /// The result of a read.
    pub data: Option<Got>,
    /// Name of the operation.
    pub operation: &'static str,
    /// Time when the manager received the command, in ns of its monotonic clock; 0 if unknown.
    pub received: u64,
    /// Whether the client has been told.
    pub told: Told,
    /// The cause of an error.
    pub cause: Cause,
    /// Events of unwatched commands of which the client is told with this one: they have succeeded.
    pub earlier: Vec<EventId>,
}

/// Whether the client has been told that a command has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The vendor's thread has told the client.
    Yes,
    /// The session must tell the client.
    No,
}

impl Ended {
    /// A command that ended without reaching the device.
    #[must_use]
    pub fn at_once(event: EventId, status: i32) -> Self {
        Self {
            event,
            status,
            moments: Some(Moments::now()),
            data: None,
            operation: "not run",
            received: 0,
            told: Told::No,
            cause: Cause::Command,
            earlier: Vec::new(),
        }
    }

    /// A command that failed before it was handed over.
    #[must_use]
    pub fn failed(failed: Failed) -> Self {
        let Failed { event, status, cause } = failed;
        Self { cause, ..Self::at_once(event, status) }
    }
}
