//! The replay buffer of a session that can be resumed: sent messages that the manager may lack, by number. After a
//! reconnection the manager tells how many messages it has, and the others are sent again (T-4).

use crate::wire::outgoing::Outgoing;
use fpga_protocol::v1::{self, client_message::Kind};
use std::collections::VecDeque;

/// Sent messages without an acknowledgement. Numbers start at 1.
#[derive(Debug)]
pub(crate) struct ReplayBuffer {
    sent: VecDeque<Outgoing>,
    /// Number of the first message in `sent`.
    first: u64,
    /// Number of the message that is sent next over this connection.
    cursor: u64,
    /// Number of received messages that the next acknowledgement reports.
    ack: Option<u64>,
}

/// The manager acknowledged messages that were never sent, or fewer than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the manager can't have received {0} messages")]
pub(crate) struct WrongCount(pub(crate) u64);

impl Default for ReplayBuffer {
    fn default() -> Self {
        Self { sent: VecDeque::new(), first: 1, cursor: 1, ack: None }
    }
}

impl ReplayBuffer {
    /// Adds a message that was just sent.
    pub(crate) fn sent(&mut self, message: &Outgoing) {
        self.sent.push_back(message.clone());
        self.cursor += 1;
    }

    /// Removes the first `received` messages: the manager has acknowledged them.
    pub(crate) fn acknowledged(&mut self, received: u64) -> Result<(), WrongCount> {
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

    /// Starts sending again all messages that the manager may lack.
    pub(crate) fn rewind(&mut self) {
        self.cursor = self.first;
    }

    /// Has an acknowledgement of `received` messages sent.
    pub(crate) fn send_ack(&mut self, received: u64) {
        self.ack = Some(received);
    }

    /// Whether an acknowledgement is to be sent.
    pub(crate) fn has_ack_to_send(&self) -> bool {
        self.ack.is_some()
    }

    /// The next message to send before new ones: an acknowledgement, or a message that the manager lacks.
    pub(crate) fn next(&mut self) -> Option<Outgoing> {
        if let Some(received) = self.ack.take() {
            let ack = Kind::Ack(v1::Ack { received });
            return Some(Outgoing::Message(v1::ClientMessage { kind: Some(ack) }));
        }
        let index = usize::try_from(self.cursor - self.first).unwrap_or(usize::MAX);
        let again = self.sent.get(index).cloned()?;
        self.cursor += 1;
        Some(again)
    }
}
