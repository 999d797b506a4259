//! What to do when the connection to a manager is lost (T-4): fail the program by the standard's errors, or come back to
//! the session (`FPGA_RECONNECT=resume`), which the manager keeps for a while.
//!
//! Only the way back is here: what has to be said again is the outbox's business, and that nothing is done twice is
//! that of the numbers on both sides.

use crate::address::ManagerAddress;
use crate::keepalive::Keepalive;
use crate::outbox::Outbox;
use crate::transport::{self, ConnectError, Inbox};
use bytes::Bytes;
use fpga_protocol::v1;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tonic::Status;
use tonic::transport::Channel;

/// Environment variable that says what to do.
pub const RECONNECT_VARIABLE: &str = "FPGA_RECONNECT";

/// The pauses between attempts: the first, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// After so many messages, or bytes of them, the manager is told that they came.
const ACK_EVERY: u64 = 32;
const ACK_BYTES: usize = 1 << 20;

/// What a lost connection means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reconnect {
    /// The session's end.
    Fail,
    /// Another connection.
    Resume,
}

impl Reconnect {
    /// As the environment wants it.
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

/// The way back to a session.
#[derive(Debug)]
pub(crate) struct Way {
    pub(crate) address: ManagerAddress,
    pub(crate) resolved: Vec<SocketAddr>,
    pub(crate) keepalive: Keepalive,
    /// What the manager knows the session by.
    pub(crate) key: Bytes,
    /// How long it does.
    pub(crate) grace: Duration,
}

/// The session again.
#[derive(Debug)]
pub(crate) struct Back {
    pub(crate) inbox: Inbox,
    /// Kept, since the connection may end with its last handle.
    pub(crate) channel: Channel,
}

/// What has been received of a manager, over all connections.
#[derive(Debug, Default)]
pub(crate) struct Received {
    pub(crate) messages: u64,
    acknowledged: u64,
    bytes: usize,
}

impl Received {
    /// One more. Returns what to tell the manager, now and then.
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

/// Whether a status is that of a broken connection, and not the manager's word.
pub(crate) fn is_of_the_connection(status: &Status) -> bool {
    std::error::Error::source(status).is_some()
}

impl Way {
    /// Tries until it succeeds, the manager refuses, the time is over or `is_over` says that nobody needs it any more.
    pub(crate) async fn back(
        &self,
        outbox: &Arc<Outbox>,
        received: u64,
        is_over: impl Fn() -> bool,
    ) -> Result<Back, ConnectError> {
        let until = Instant::now() + self.grace;
        let mut pause = FIRST_PAUSE;
        loop {
            let resume = v1::Resume { key: self.key.clone(), received };
            let error = match transport::resume(&self.address, &self.resolved, self.keepalive, resume, outbox)
                .await
            {
                Ok(back) => return Ok(back),
                Err(ConnectError::Refused(status)) if !is_of_the_connection(&status) => {
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
}
