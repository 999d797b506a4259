//! The manager's messages: replies, completions, chunks. A manager is trusted with the program's data, but not with
//! its memory: a message that doesn't fit the request fails the command or ends the session.

use super::{Download, OTHER_TRANSFER, Session};
use crate::base::sync::lock;
use crate::session::patience::Wait;
use crate::wire::command_ring::{Receiving, RingReader};
use crate::wire::kept::WrongCount;
use crate::wire::reconnect::{Received, Way, is_of_the_connection};
use crate::wire::transport::{Arrived, Inbox};
use bytes::BytesMut;
use fpga_protocol::v1::{self, server_message};
use fpga_ring::Readiness;
use prost::Message as _;
use std::sync::Weak;

/// Greatest sum of the sizes of transfers kept in memory until a call takes them (programs' binaries), in bytes.
const MAX_DOWNLOAD_BYTES: u64 = 1 << 30;

/// Greatest number of such transfers.
const MAX_DOWNLOADS: usize = 1024;

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

/// Reads messages until the session ends or is dropped. If `way` is given, a lost connection is replaced by another
/// one.
pub(super) async fn read(reader: Reader, mut inbox: Inbox, way: Option<Way>) {
    let mut received = Received::default();
    // Channel of the latest connection, which may end with the channel's last handle.
    let mut _channel = None;
    loop {
        let arrived = inbox.arrived().await;
        let Some(session) = reader.0.upgrade() else { return };
        let message = match arrived {
            Arrived::Rung(Ok(())) => {
                if !session.take_from_ring() {
                    return;
                }
                // There may be room in the ring for messages that wait.
                session.outbox.wake();
                continue;
            }
            Arrived::Rung(Err(error)) => {
                // A manager that ends closes all its sockets. Messages that it sent before are handled first.
                session.take_from_ring();
                return session.lose(&error.to_string());
            }
            Arrived::Stream(message) => message,
        };
        // Messages in the ring came before the end of the stream, so they are handled first.
        if !matches!(message, Ok(Some(_))) && !session.take_from_ring() {
            return;
        }
        match message {
            Ok(Some(message)) => {
                if let Err(violation) = session.receive_one(message, way.is_some(), &mut received) {
                    tracing::warn!(%violation, "A device manager broke the protocol");
                    return session.lose("protocol violation");
                }
            }
            Ok(None) => return session.lose("the manager ended the session"),
            Err(status) => {
                let Some(way) = way.as_ref().filter(|_| is_of_the_connection(&status)) else {
                    return session.lose(status.message());
                };
                tracing::debug!(why = status.message(), "Lost the connection to a device manager");
                let outbox = session.outbox.clone();
                drop(session);
                let is_over = || reader.0.upgrade().is_none_or(|session| !session.is_usable());
                match way.back(&outbox, received.messages, is_over).await {
                    Ok(back) => {
                        tracing::info!(manager = %way.address, "Back at a device manager");
                        (inbox, _channel) = (back.inbox, Some(back.channel));
                    }
                    Err(error) => {
                        tracing::warn!(manager = %way.address, %error, "A session is lost");
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
    fn take_from_ring(&self) -> bool {
        let Some(ring) = &self.ring else { return true };
        let mut receiving = ring.receive();
        self.take_from(ring, &mut receiving)
    }

    /// Handles all messages in the ring, unless another thread does.
    pub(super) fn look_into_ring(&self) {
        if let Some(ring) = &self.ring
            && let Some(mut receiving) = ring.try_receive()
        {
            self.take_from(ring, &mut receiving);
        }
    }

    /// Polls the ring until `is_done` returns true, or until sleeping is cheaper. Meanwhile the manager need not
    /// ring, and no other thread need wake this one.
    pub(super) fn watch_ring(&self, wait: Option<&Wait<'_>>, is_done: impl Fn() -> bool) {
        let Some(ring) = &self.ring else { return };
        let Some(wait) = wait.filter(|wait| wait.looks()) else { return };
        let Some(mut receiving) = ring.try_receive() else { return };
        receiving.stay_awake();
        loop {
            if !self.take_from(ring, &mut receiving) {
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

    fn take_from(&self, ring: &RingReader, receiving: &mut Receiving) -> bool {
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
        received: &mut Received,
    ) -> Result<(), Violation> {
        if !numbered {
            return self.handle(message);
        }
        if let Some(server_message::Kind::Ack(ack)) = message.kind {
            return Ok(self.outbox.manager_has(ack.received)?);
        }
        let bytes = message.encoded_len();
        self.handle(message)?;
        if let Some(acknowledged) = received.count(bytes) {
            self.outbox.acknowledge(acknowledged);
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
            Some(server_message::Kind::Welcome(_) | server_message::Kind::Ack(_)) | None => {
                Err(Violation::Kind)
            }
        }
    }

    fn receive(&self, chunk: &v1::Chunk) -> Result<(), Violation> {
        let violation = Violation::Chunk(chunk.transfer);
        if chunk.transfer & OTHER_TRANSFER == 0 {
            let event = lock(&self.state).at_manager.get(&chunk.transfer).cloned();
            let fits = event.is_some_and(|event| event.receive(chunk.length, chunk.offset, &chunk.data));
            return if fits { Ok(()) } else { Err(violation) };
        }
        let mut state = lock(&self.state);
        let downloads = &mut state.downloads;
        if !downloads.contains_key(&chunk.transfer) {
            let others: u64 = downloads.values().map(|download| download.length).sum();
            let room = MAX_DOWNLOAD_BYTES - others;
            if chunk.length > room || downloads.len() >= MAX_DOWNLOADS {
                return Err(violation);
            }
        }
        let new = Download { length: chunk.length, bytes: BytesMut::new() };
        let download = downloads.entry(chunk.transfer).or_insert(new);
        let received = download.bytes.len() as u64;
        let fits = chunk.length == download.length
            && chunk.offset == received
            && chunk.data.len() as u64 <= download.length - received;
        if !fits {
            return Err(violation);
        }
        download.bytes.extend_from_slice(&chunk.data);
        Ok(())
    }

    fn complete(&self, completions: Vec<v1::Completion>) {
        let mut ended = Vec::with_capacity(completions.len());
        {
            let mut state = lock(&self.state);
            for completion in completions {
                if let Some(event) = state.at_manager.remove(&completion.event) {
                    ended.push((event, completion));
                }
            }
            // The manager has no commands of this session, so commands that wait for a flush point are sent (T-5).
            if state.at_manager.is_empty() && !state.batch.is_empty() {
                self.send_locked(&mut state);
            }
        }
        self.driver.remove_outstanding(ended.len());
        for (event, completion) in ended {
            event.completed(completion, self.offset);
        }
        self.outbox.wake();
    }
}
