//! The reaction to a lost connection (T-4): commands fail with the standard's errors, or the session is resumed
//! over another connection (`FPGA_RECONNECT=resume`); the manager keeps it for a while.
//!
//! This module only connects again. The outbox sends the messages again that the manager lacks, and the message
//! numbers on both sides ensure that nothing is done twice.

use crate::wire::access::Access;
use crate::wire::address::ManagerAddress;
use crate::wire::connection_race::HasSent;
use crate::wire::handshake::{ConnectError, Handshake, hello};
use crate::wire::inbox::Inbox;
use crate::wire::keepalive::Keepalive;
use crate::wire::outbox::Outbox;
use bytes::Bytes;
use fpga_protocol::v1;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::transport::Channel;

/// Environment variable with the reaction: `fail` or `resume`.
pub(crate) const RECONNECT_VARIABLE: &str = "FPGA_RECONNECT";

/// The pause after the first attempt, and the longest pause. Each pause is twice the previous one.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The manager gets an acknowledgement after this many messages, or this many bytes of messages.
const ACK_EVERY: u64 = 32;
const ACK_BYTES: usize = 1 << 20;

/// The reaction to a lost connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconnect {
    /// The session ends.
    Fail,
    /// The session continues over another connection.
    Resume,
}

impl Reconnect {
    /// The reaction in [`RECONNECT_VARIABLE`], or [`Self::Fail`].
    pub(crate) fn from_environment() -> Self {
        match std::env::var(RECONNECT_VARIABLE).as_deref() {
            Ok("resume") => Self::Resume,
            Ok("fail" | "") | Err(_) => Self::Fail,
            Ok(other) => {
                tracing::warn!(other, "{RECONNECT_VARIABLE} is `fail` or `resume`: taken for `fail`");
                Self::Fail
            }
        }
    }
}

/// A connection whose session can be resumed over another one.
#[derive(Debug)]
pub(crate) struct ResumableConnection {
    pub(crate) address: ManagerAddress,
    pub(crate) resolved: Vec<SocketAddr>,
    pub(crate) keepalive: Keepalive,
    /// The key by which the manager finds the session.
    pub(crate) key: Bytes,
    /// The time for which the manager keeps the session without a connection.
    pub(crate) grace: Duration,
}

/// The connection over which a session was resumed.
#[derive(Debug)]
pub(crate) struct ResumedConnection {
    pub(crate) inbox: Inbox,
    /// Kept alive, since the connection may end with its last handle.
    pub(crate) channel: Channel,
}

/// Counts the messages received from a manager, over all connections.
#[derive(Debug, Default)]
pub(crate) struct ReceivedCount {
    pub(crate) messages: u64,
    acknowledged: u64,
    bytes: usize,
}

impl ReceivedCount {
    /// Counts a message of `bytes` bytes. Returns the number of messages if it is time to acknowledge them.
    pub(crate) fn count(&mut self, bytes: usize) -> Option<u64> {
        self.messages += 1;
        self.bytes += bytes;
        if self.messages - self.acknowledged < ACK_EVERY && self.bytes < ACK_BYTES {
            return None;
        }
        (self.acknowledged, self.bytes) = (self.messages, 0);
        Some(self.messages)
    }
}

/// Whether a status comes from a broken connection and not from the manager.
pub(crate) fn is_connection_error(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

impl ResumableConnection {
    /// Resumes the session. Tries again until it succeeds, the manager refuses, the grace time is over, or
    /// `is_over` returns true because the session isn't needed any more.
    ///
    /// # Errors
    /// [`ConnectError::Refused`] if the manager refuses, else the error of the last attempt.
    pub(crate) async fn resume(
        &self,
        outbox: &Arc<Outbox>,
        received: u64,
        is_over: impl Fn() -> bool,
    ) -> Result<ResumedConnection, ConnectError> {
        let until = Instant::now() + self.grace;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.try_resume(outbox, received).await {
                Ok(resumed) => return Ok(resumed),
                Err(ConnectError::Refused(status)) if !is_connection_error(&status) => {
                    return Err(ConnectError::Refused(status));
                }
                Err(error) => error,
            };
            if Instant::now() + pause >= until || is_over() {
                return Err(error);
            }
            sleep(pause).await;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }

    async fn try_resume(
        &self,
        outbox: &Arc<Outbox>,
        received: u64,
    ) -> Result<ResumedConnection, ConnectError> {
        let resume = v1::Resume { key: self.key.clone(), received };
        let first = hello(Access::Environment, v1::Hello { resume: Some(resume), ..v1::Hello::default() })?;
        let (outgoing, has_sent) = (outbox.connection(first), HasSent::default());
        let (resolved, access) = (&self.resolved, Access::Environment);
        let handshake =
            Handshake::perform(&self.address, resolved, access, self.keepalive, outgoing, &has_sent).await?;
        let Handshake { channel, stream, welcome } = handshake;
        outbox.start_sending(welcome.received)?;
        Ok(ResumedConnection { inbox: Inbox::of(stream), channel })
    }
}
