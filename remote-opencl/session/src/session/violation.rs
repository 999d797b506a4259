//! Violations of the protocol and its limits by a client, and the status of each.

use crate::calls::CallError;
use crate::dependencies::UsedTwice;
use crate::objects::AddError;
use crate::transfers::TransferError;
use fpga_protocol::weight::Malformed;
use tonic::{Code, Status};

/// Maximum number of events that a session has not released.
pub(super) const MAX_EVENTS: usize = 1 << 20;
/// Maximum number of deferred commands of a session.
pub(super) const MAX_DEFERRED: usize = 1 << 16;
/// Maximum number of commands in one Flush.
pub(super) const MAX_FLUSH: usize = 1 << 14;

/// A violation of the protocol by a client. It ends the session.
#[derive(Debug, thiserror::Error)]
pub(super) enum Violation {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(transparent)]
    UsedTwice(#[from] UsedTwice),
    #[error("a message is empty, or this device manager does not know its kind")]
    NoKind,
    #[error("Hello is the first message, and only that")]
    Hello,
    #[error("an event id is 0")]
    ZeroEvent,
    #[error("a Flush has {0} commands; at most {MAX_FLUSH} are taken")]
    Flush(usize),
    #[error("the session has {MAX_EVENTS} events; release some")]
    Events,
    #[error(
        "there is no memory left for the events of this tenant's sessions; release some, or raise --client-memory"
    )]
    EventMemory,
    #[error("{MAX_DEFERRED} commands wait for user events; set some")]
    Deferred,
    #[error("a message decodes to {0} bytes, which is too much")]
    Decoded(u64),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(
        "the device manager can hold no more for this tenant, and the session holds {0} bytes that only its client can free; \
         wait for commands, or raise --client-memory"
    )]
    Bytes(u64),
}

impl Violation {
    /// The status that ends the session.
    pub(super) fn status(&self) -> Status {
        let code = match self {
            Self::Events
            | Self::EventMemory
            | Self::Deferred
            | Self::Bytes(_)
            | Self::Call(CallError::Add(AddError::TooMany)) => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        Status::new(code, self.to_string())
    }
}
