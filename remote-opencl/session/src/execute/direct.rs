//! Tells the client of the end of a command over the ring, without the session.

use crate::command_ring::RingSender;
use crate::dependencies::EventId;
use crate::report::Told;
use fpga_protocol::v1;
use fpga_protocol::v1::server_message::Kind;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells the client from the vendor's thread that a command has ended. This saves waking the session's thread
/// first.
#[derive(Debug)]
pub(super) struct Direct {
    ring: RingSender,
    events: Vec<EventId>,
    told: AtomicBool,
}

impl Direct {
    /// The report of a command that ends with these events.
    pub(super) fn new(ring: RingSender, events: Vec<EventId>) -> Self {
        Self { ring, events, told: AtomicBool::new(false) }
    }

    /// Whether the client has been told.
    pub(super) fn told(&self) -> Told {
        if self.told.load(Ordering::Acquire) { Told::Yes } else { Told::No }
    }

    /// Tells the client that the command has ended, if it succeeded. Returns whether it has told the client.
    pub(super) fn tell(&self, status: i32) -> Told {
        // The cause of a failure is found by calls of the vendor, which are not allowed on this thread.
        if status != 0 {
            return Told::No;
        }
        let completion =
            |event: &EventId| v1::Completion { event: event.0, status, ..v1::Completion::default() };
        let completions = v1::Completions { completions: self.events.iter().map(completion).collect() };
        self.ring.send(&v1::ServerMessage { kind: Some(Kind::Completions(completions)) }, None);
        self.told.store(true, Ordering::Release);
        Told::Yes
    }
}
