//! Telling the client of an end by the ring, without the session.

use super::Told;
use crate::command_ring::RingSender;
use crate::ready::EventId;
use fpga_protocol::v1;
use fpga_protocol::v1::server_message::Kind;
use std::sync::atomic::{AtomicBool, Ordering};

/// Tells the client from the vendor's own thread that a command has ended: one thread less to be woken between the two.
#[derive(Debug)]
pub(super) struct Direct {
    ring: RingSender,
    events: Vec<EventId>,
    told: AtomicBool,
}

impl Direct {
    /// Of a command that ends with these events.
    pub(super) fn new(ring: RingSender, events: Vec<EventId>) -> Self {
        Self { ring, events, told: AtomicBool::new(false) }
    }

    /// Whether the client knows.
    pub(super) fn told(&self) -> Told {
        if self.told.load(Ordering::Acquire) { Told::Yes } else { Told::No }
    }

    /// The command has ended.
    pub(super) fn tell(&self, status: i32) {
        // Why it has failed takes a look at the vendor, which is not to be called here.
        if status != 0 {
            return;
        }
        let completion =
            |event: &EventId| v1::Completion { event: event.0, status, ..v1::Completion::default() };
        let completions = v1::Completions { completions: self.events.iter().map(completion).collect() };
        self.ring.send(&v1::ServerMessage { kind: Some(Kind::Completions(completions)) }, None);
        self.told.store(true, Ordering::Release);
    }
}
