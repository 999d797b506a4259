//! What was sent to a manager that may lack it, by the numbers of the messages: where the session can be resumed, the
//! manager says how many it has, and the rest is said again over the next connection (T-4).

use crate::outbox::Outgoing;
use fpga_protocol::v1::{self, client_message::Kind};
use std::collections::VecDeque;

/// Messages by their numbers, which count up from 1.
#[derive(Debug)]
pub(crate) struct Kept {
    sent: VecDeque<Outgoing>,
    /// Number of the first of them.
    first: u64,
    /// Number of the one that goes next over this connection.
    cursor: u64,
    /// What the manager is to be told that was received.
    received: Option<u64>,
}

/// A manager says that it has what was never sent, or lacks what it had.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the manager can't have received {0} messages")]
pub(crate) struct WrongCount(pub(crate) u64);

impl Default for Kept {
    fn default() -> Self {
        Self { sent: VecDeque::new(), first: 1, cursor: 1, received: None }
    }
}

impl Kept {
    /// A new message goes.
    pub(crate) fn sent(&mut self, message: &Outgoing) {
        self.sent.push_back(message.clone());
        self.cursor += 1;
    }

    /// The manager has this many messages.
    pub(crate) fn manager_has(&mut self, received: u64) -> Result<(), WrongCount> {
        let sent = self.first - 1 + self.sent.len() as u64;
        if received > sent || received + 1 < self.first {
            return Err(WrongCount(received));
        }
        while self.first <= received {
            self.sent.pop_front();
            self.first += 1;
        }
        self.cursor = self.cursor.max(self.first);
        Ok(())
    }

    /// All that the manager may lack goes again.
    pub(crate) fn rewind(&mut self) {
        self.cursor = self.first;
    }

    /// This many messages of the manager came.
    pub(crate) fn acknowledge(&mut self, received: u64) {
        self.received = Some(received);
    }

    /// Whether the manager is to be told what came.
    pub(crate) fn has_to_acknowledge(&self) -> bool {
        self.received.is_some()
    }

    /// What goes before anything new: that messages came, and what the manager lacks.
    pub(crate) fn next(&mut self) -> Option<Outgoing> {
        if let Some(received) = self.received.take() {
            let ack = Kind::Ack(v1::Ack { received });
            return Some(Outgoing::Message(v1::ClientMessage { kind: Some(ack) }));
        }
        let index = usize::try_from(self.cursor - self.first).unwrap_or(usize::MAX);
        let again = self.sent.get(index).cloned()?;
        self.cursor += 1;
        Some(again)
    }
}
