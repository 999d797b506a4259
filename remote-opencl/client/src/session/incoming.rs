//! The manager's messages: replies, completions, chunks. A manager is trusted with the program's data, but not with
//! its memory: a message that doesn't fit the request fails the command or ends the session.

use super::{OTHER_TRANSFER, Session};
use crate::base::sync::lock;
use crate::printed;
use crate::session::adaptive_spin::Wait;
use crate::wire::command_ring::{Receiving, RingReader};
use crate::wire::inbox::{Inbox, InboxEvent};
use crate::wire::reconnect::{ReceivedCount, ResumableConnection, is_connection_error};
use crate::wire::replay_buffer::WrongCount;
use fpga_protocol::v1::{self, server_message};
use fpga_ring::Readiness;
use prost::Message as _;
use std::sync::Weak;

/// A protocol violation, which ends the session.
#[derive(Debug, thiserror::Error)]
enum Violation {
    #[error("a message of an unknown kind")]
    Kind,
    #[error("a chunk of transfer {0} that doesn't fit")]
    Chunk(u64),
    #[error(transparent)]
    Count(#[from] WrongCount),
}

/// The reading task's reference to a session. When it is dropped, however the task ended, the session is lost.
#[derive(Debug)]
pub(super) struct Reader(pub(super) Weak<Session>);

impl Drop for Reader {
    fn drop(&mut self) {
        if let Some(session) = self.0.upgrade() {
            session.lose("nobody reads from it any more");
        }
    }
}

/// Reads messages until the session ends or is dropped. If the session is `resumable`, a lost connection is replaced
/// by another one.
pub(super) async fn read(reader: Reader, mut inbox: Inbox, resumable: Option<ResumableConnection>) {
    let mut received = ReceivedCount::default();
    // Channel of the latest connection, which may end with the channel's last handle.
    let mut _channel = None;
    loop {
        let event = inbox.next_event().await;
        let Some(session) = reader.0.upgrade() else { return };
        let message = match event {
            InboxEvent::Ring(Ok(())) => {
                if !session.drain_ring() {
                    return;
                }
                // There may be room in the ring for messages that wait.
                session.outbox.wake();
                continue;
            }
            InboxEvent::Ring(Err(error)) => {
                // A manager that ends closes all its sockets. Messages that it sent before are handled first.
                session.drain_ring();
                return session.lose(&error.to_string());
            }
            InboxEvent::Stream(message) => message,
        };
        // Messages in the ring came before the end of the stream, so they are handled first.
        if !matches!(message, Ok(Some(_))) && !session.drain_ring() {
            return;
        }
        match message {
            Ok(Some(message)) => {
                if let Err(violation) = session.receive_one(message, resumable.is_some(), &mut received) {
                    tracing::warn!(%violation, "A device manager broke the protocol");
                    return session.lose("protocol violation");
                }
            }
            Ok(None) => return session.lose("the manager ended the session"),
            Err(status) => {
                let Some(lost) = resumable.as_ref().filter(|_| is_connection_error(&status)) else {
                    return session.lose(status.message());
                };
                tracing::debug!(why = status.message(), "Lost the connection to a device manager");
                let outbox = session.outbox.clone();
                drop(session);
                let is_over = || reader.0.upgrade().is_none_or(|session| !session.is_usable());
                match lost.resume(&outbox, received.messages, is_over).await {
                    Ok(resumed) => {
                        tracing::info!(manager = %lost.address, "Back at a device manager");
                        (inbox, _channel) = (resumed.inbox, Some(resumed.channel));
                    }
                    Err(error) => {
                        tracing::warn!(manager = %lost.address, %error, "A session is lost");
                        if let Some(session) = reader.0.upgrade() {
                            session.lose("no way back");
                        }
                        return;
                    }
                }
            }
        }
    }
}

impl Session {
    /// Handles all messages in the ring. Returns false if one of them ended the session.
    pub(super) fn drain_ring(&self) -> bool {
        let Some(ring) = &self.ring else { return true };
        let mut receiving = ring.receive();
        self.drain(ring, &mut receiving)
    }

    /// Handles all messages in the ring, unless another thread does.
    pub(super) fn poll_ring(&self) {
        if let Some(ring) = &self.ring
            && let Some(mut receiving) = ring.try_receive()
        {
            self.drain(ring, &mut receiving);
        }
    }

    /// Polls the ring until `is_done` returns true, or until sleeping is cheaper. Meanwhile the manager need not
    /// ring, and no other thread need wake this one.
    pub(super) fn spin_on_ring(&self, wait: Option<&Wait<'_>>, is_done: impl Fn() -> bool) {
        let Some(ring) = &self.ring else { return };
        let Some(wait) = wait.filter(|wait| wait.spins()) else { return };
        let Some(mut receiving) = ring.try_receive() else { return };
        receiving.stay_awake();
        loop {
            if !self.drain(ring, &mut receiving) {
                return;
            }
            if is_done() || wait.is_over() {
                // All earlier messages are handled; for later ones the manager will ring.
                match receiving.wait() {
                    Ok(Readiness::Ready) => receiving.stay_awake(),
                    // The next reader of the ring finds the error too.
                    Ok(Readiness::Waiting) | Err(_) => break,
                }
            }
        }
    }

    fn drain(&self, ring: &RingReader, receiving: &mut Receiving) -> bool {
        loop {
            let lost = match receiving.take(ring) {
                Ok(None) => return true,
                Ok(Some(message)) => match self.handle(message) {
                    Ok(()) => continue,
                    Err(violation) => violation.to_string(),
                },
                Err(error) => error.to_string(),
            };
            tracing::warn!(error = lost, "A device manager broke the protocol");
            self.lose(&lost);
            return false;
        }
    }

    /// Handles a message, and counts it if the session can be resumed.
    fn receive_one(
        &self,
        message: v1::ServerMessage,
        numbered: bool,
        received: &mut ReceivedCount,
    ) -> Result<(), Violation> {
        if !numbered {
            return self.handle(message);
        }
        if let Some(server_message::Kind::Ack(ack)) = message.kind {
            return Ok(self.outbox.acknowledged(ack.received)?);
        }
        let bytes = message.encoded_len();
        self.handle(message)?;
        if let Some(acknowledged) = received.count(bytes) {
            self.outbox.send_ack(acknowledged);
            self.outbox.wake();
        }
        Ok(())
    }

    fn handle(&self, message: v1::ServerMessage) -> Result<(), Violation> {
        match message.kind {
            Some(server_message::Kind::Completions(completions)) => {
                self.complete(completions.completions);
                Ok(())
            }
            Some(server_message::Kind::Chunk(chunk)) => self.receive(&chunk),
            Some(server_message::Kind::Reply(reply)) => {
                let call = lock(&self.state).calls.remove(&reply.id);
                if let Some(call) = call {
                    // The caller may have given up.
                    drop(call.send(reply));
                }
                Ok(())
            }
            Some(server_message::Kind::Printed(printed)) => {
                printed::write(&printed.text);
                Ok(())
            }
            Some(server_message::Kind::Yield(_)) if self.holder.takes_yield() => Ok(()),
            Some(
                server_message::Kind::Yield(_)
                | server_message::Kind::Welcome(_)
                | server_message::Kind::Ack(_),
            )
            | None => Err(Violation::Kind),
        }
    }

    fn receive(&self, chunk: &v1::Chunk) -> Result<(), Violation> {
        let violation = Violation::Chunk(chunk.transfer);
        if chunk.transfer & OTHER_TRANSFER == 0 {
            let command = lock(&self.state).at_manager.get(&chunk.transfer).cloned();
            let fits =
                command.is_some_and(|command| command.receive(chunk.length, chunk.offset, &chunk.data));
            return if fits { Ok(()) } else { Err(violation) };
        }
        if lock(&self.state).downloads.receive(chunk) { Ok(()) } else { Err(violation) }
    }

    fn complete(&self, completions: Vec<v1::Completion>) {
        let mut ended = Vec::with_capacity(completions.len());
        {
            let mut state = lock(&self.state);
            for mut completion in completions {
                for event in std::mem::take(&mut completion.earlier) {
                    if let Some(command) = state.at_manager.remove(&event) {
                        ended.push((command, v1::Completion { event, ..v1::Completion::default() }));
                    }
                }
                if let Some(command) = state.at_manager.remove(&completion.event) {
                    ended.push((command, completion));
                }
            }
            // The manager has no commands of this session, so commands that wait for a flush point are sent (T-5).
            if self.holder.sends_early() && state.at_manager.is_empty() && !state.batch.is_empty() {
                self.send_locked(&mut state);
            }
        }
        self.driver.remove_outstanding(ended.len());
        for (command, completion) in ended {
            command.completed(completion, &self.clock);
        }
        self.outbox.wake();
    }
}
