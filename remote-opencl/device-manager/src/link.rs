//! Resumable connections (T-4): a session outlives the loss of its connection. Messages of both directions are
//! numbered, kept until the peer acknowledges them, and sent again over the next connection, so that each message
//! counts exactly once.
//!
//! The session does not notice: it reads and writes messages as over one connection. No session outlives the
//! manager.

mod lines;

pub use lines::{Line, Lines};

use crate::grpc::frames::GrpcFrames;
use crate::grpc::read_ahead::TrackedBody;
use bytes::Bytes;
use fpga_board::dispatch::Tenant;
use fpga_protocol::v1;
use fpga_protocol::v1::client_message::Kind;
use fpga_session::governor::{Budget, Hold};
use fpga_session::incoming::Incoming;
use fpga_session::metrics::Metrics;
use fpga_session::outgoing::{Messages, Said};
use fpga_session::segments::Key;
use parking_lot::Mutex;
use prost::Message as _;
use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// Maximum number of bytes in the replay buffer of a session, or less where memory is scarce. A session that
/// exceeds the limit, since its client does not acknowledge messages, can no longer be resumed.
const MAX_KEPT_BYTES: u64 = 64 << 20;
/// Bytes that a message in the replay buffer takes besides its content.
const KEPT_BYTES: u64 = 128;
/// Maximum number of messages in the replay buffer of a session.
const MAX_KEPT: usize = 1 << 16;
/// Number of received messages after which the client gets an acknowledgement.
const ACK_EVERY: u64 = 64;
const ACK_BYTES: usize = 1 << 20;

/// The messages from the client over one connection.
pub type Client = GrpcFrames<TrackedBody<hyper::body::Incoming>>;

/// The links of a manager by their keys. Clones share the same links.
#[derive(Debug, Clone)]
pub struct Links {
    by_key: Arc<Mutex<HashMap<[u8; 32], Arc<Link>>>>,
    grace: Duration,
    metrics: Metrics,
}

/// The link of one session.
#[derive(Debug)]
pub struct Link {
    tenant: Tenant,
    state: Mutex<State>,
    /// Notified when another connection was attached.
    attached: Notify,
}

#[derive(Debug)]
struct State {
    /// Number of the latest connection.
    connection: u64,
    /// Messages of the latest connection, until [`Resumable`] takes them.
    next: Option<Client>,
    /// Number of messages that the session has taken.
    received: u64,
    /// Number of messages that the client knows to be received, and the number of bytes received since.
    acknowledged: u64,
    unacknowledged_bytes: usize,
    /// Messages of the session to the client.
    source: Messages,
    /// The replay buffer: messages that the client may lack. The first one has the number `first`.
    kept: VecDeque<(Said, Hold)>,
    first: u64,
    kept_bytes: u64,
    budget: Budget,
    /// Number of the next message over the latest connection.
    cursor: u64,
    /// Wakes the task that sends over the latest connection.
    waker: Option<Waker>,
    resumable: Result<(), Status>,
    /// A value that is dropped with the latest connection's line, or when another connection replaces it.
    carried: Option<Box<dyn Any + Send + Sync>>,
}

/// Messages from the client, over one connection after another.
#[derive(Debug)]
pub struct Resumable {
    links: Links,
    key: [u8; 32],
    link: Arc<Link>,
    current: Option<(u64, Client)>,
    /// The client may come back until then. `None` while it is connected.
    until: Option<Instant>,
}

impl Links {
    /// An empty set of links. A client has `grace` to come back; with zero no session can be resumed.
    #[must_use]
    pub fn new(grace: Duration, metrics: Metrics) -> Self {
        Self { by_key: Arc::default(), grace, metrics }
    }

    /// Whether sessions can be resumed.
    #[must_use]
    pub fn are_on(&self) -> bool {
        !self.grace.is_zero()
    }

    /// Starts the link of a new session over its first connection. Returns the receiving and the sending direction.
    ///
    /// # Errors
    /// If the system has no random numbers.
    pub fn start(
        &self,
        tenant: Tenant,
        client: Client,
        (source, budget): (Messages, Budget),
    ) -> io::Result<(Resumable, Line)> {
        let key: [u8; 32] = Key::random()?.bytes().try_into().map_err(io::Error::other)?;
        let state = State {
            connection: 1,
            next: None,
            received: 0,
            acknowledged: 0,
            unacknowledged_bytes: 0,
            source,
            kept: VecDeque::new(),
            first: 1,
            kept_bytes: 0,
            budget,
            cursor: 1,
            waker: None,
            resumable: Ok(()),
            carried: None,
        };
        let link = Arc::new(Link { tenant, state: Mutex::new(state), attached: Notify::new() });
        self.by_key.lock().insert(key, link.clone());
        let handshake = Handshake { key: Bytes::copy_from_slice(&key), grace: self.grace };
        let line = Line::new(link.clone(), 1, Some(handshake), None);
        Ok((Resumable { links: self.clone(), key, link, current: Some((1, client)), until: None }, line))
    }

    /// Continues a session over another connection. `received` is the number of messages that the client has.
    ///
    /// # Errors
    /// The status for the client: no such session of this tenant, a session that can't be resumed any more, or an
    /// impossible `received`.
    pub fn resume(&self, tenant: &Tenant, key: &[u8], received: u64, client: Client) -> Result<Line, Status> {
        let unknown =
            || Status::not_found("there is no such session: it ended, or the device manager is another");
        let key: [u8; 32] = key.try_into().map_err(|_| unknown())?;
        // A key of another tenant's session is answered as an unknown one.
        let link = self.by_key.lock().get(&key).filter(|link| link.tenant == *tenant).cloned();
        let link = link.ok_or_else(unknown)?;
        let (connection, had) = link.attach(received, client)?;
        self.metrics.sessions_resumed.inc();
        tracing::debug!(tenant = tenant.as_str(), connection, "A session goes on over another connection");
        let welcome = v1::Welcome { received: had, ..v1::Welcome::default() };
        Ok(Line::new(link, connection, None, Some(welcome)))
    }
}

/// Fields that a link adds to the first Welcome.
#[derive(Debug)]
struct Handshake {
    key: Bytes,
    grace: Duration,
}

impl Link {
    /// Makes `client` the latest connection. Returns the number of the connection and the number of messages that
    /// the session has taken.
    fn attach(&self, received: u64, client: Client) -> Result<(u64, u64), Status> {
        let mut state = self.state.lock();
        state.resumable.clone()?;
        state.has(received)?;
        state.connection += 1;
        state.next = Some(client);
        state.cursor = state.first;
        // The Welcome acknowledges all messages so far.
        (state.acknowledged, state.unacknowledged_bytes) = (state.received, 0);
        let told = (state.connection, state.received);
        let (old, carried) = (state.waker.take(), state.carried.take());
        drop(state);
        // The former connection may never be polled again: its client can keep it open and read nothing.
        drop(carried);
        if let Some(waker) = old {
            waker.wake();
        }
        self.attached.notify_one();
        Ok(told)
    }
}

impl State {
    /// Handles the client's acknowledgement of its first `received` messages.
    fn has(&mut self, received: u64) -> Result<(), Status> {
        let said = self.first - 1 + self.kept.len() as u64;
        if received > said || received + 1 < self.first {
            return Err(Status::invalid_argument("the client can't have received that many messages"));
        }
        while self.first <= received {
            self.kept_bytes -= self.kept.pop_front().map_or(0, |(_, hold)| hold.bytes());
            self.first += 1;
        }
        self.cursor = self.cursor.max(self.first);
        Ok(())
    }

    /// Counts a message that is sent now, and adds it to the replay buffer if the limits allow. Otherwise the
    /// session can't be resumed any more.
    fn keep(&mut self, said: &Said) {
        self.cursor += 1;
        let bytes = said.encoded_len() as u64 + KEPT_BYTES;
        let most = MAX_KEPT_BYTES.min(self.budget.most() / 16);
        let hold = self.budget.try_hold(bytes).ok().filter(|_| {
            // Messages in the replay buffer are freed only when the client acknowledges them.
            self.kept_bytes + bytes <= most && self.kept.len() < MAX_KEPT && !self.budget.is_pressed()
        });
        if let Some(hold) = hold {
            self.kept_bytes += bytes;
            self.kept.push_back((said.clone(), hold));
        } else {
            self.resumable = Err(Status::resource_exhausted("the client did not say what it had received"));
            self.first += self.kept.len() as u64 + 1;
            self.kept.clear();
            self.kept_bytes = 0;
        }
    }

    fn ack_is_due(&self) -> bool {
        self.received - self.acknowledged >= ACK_EVERY || self.unacknowledged_bytes >= ACK_BYTES
    }

    /// Counts a message of `bytes` that the session takes. Returns the sender's waker if an acknowledgement is due.
    fn take(&mut self, bytes: usize) -> Option<Waker> {
        self.received += 1;
        self.unacknowledged_bytes += bytes;
        if self.ack_is_due() { self.waker.take() } else { None }
    }
}

/// Number of received messages if the message is an acknowledgement. Only short messages are decoded.
fn acknowledged(message: &Bytes) -> Option<u64> {
    /// More than the tags, the length and the number of an acknowledgement take.
    const MAX_ACK_BYTES: usize = 16;
    if message.len() > MAX_ACK_BYTES {
        return None;
    }
    match v1::ClientMessage::decode(message.clone()).ok()?.kind? {
        Kind::Ack(ack) => Some(ack.received),
        _ => None,
    }
}

impl Resumable {
    /// Takes a message of the given connection. Returns `None` if the message is an acknowledgement, or if the
    /// connection is not the latest one.
    fn accept(&self, connection: u64, message: Bytes) -> Result<Option<Bytes>, Status> {
        let mut state = self.link.state.lock();
        if state.connection != connection {
            // The client sends the message again: when it resumed, it learned that the session had not taken the
            // message.
            return Ok(None);
        }
        if let Some(received) = acknowledged(&message) {
            state.has(received)?;
            return Ok(None);
        }
        let waker = state.take(message.len());
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(Some(message))
    }

    /// Handles the loss of the connection: the client has the time of grace to come back.
    ///
    /// # Errors
    /// If the session can't be resumed.
    fn lost(&mut self, why: &Status) -> Result<(), Status> {
        self.link.state.lock().resumable.clone()?;
        if self.until.is_none() {
            tracing::debug!(why = why.message(), grace = ?self.links.grace, "A session waits for its client");
            self.links.metrics.sessions_waiting.inc();
            self.until = Some(Instant::now() + self.links.grace);
        }
        Ok(())
    }

    fn found(&mut self) {
        if self.until.take().is_some() {
            self.links.metrics.sessions_waiting.dec();
        }
    }
}

impl Incoming for Resumable {
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            let next = {
                let mut state = self.link.state.lock();
                state.next.take().map(|next| (state.connection, next))
            };
            if next.is_some() {
                self.current = next;
                self.found();
            }
            let Some((connection, stream)) = &mut self.current else {
                let until = self.until.unwrap_or_else(Instant::now);
                tokio::select! {
                    () = self.link.attached.notified() => continue,
                    () = sleep_until(until) => {
                        return Err(Status::unavailable("the client did not come back in time"));
                    }
                }
            };
            let connection = *connection;
            let message = tokio::select! {
                biased;
                () = self.link.attached.notified() => continue,
                message = stream.next() => message,
            };
            if self.link.state.lock().connection != connection {
                continue;
            }
            match message {
                Ok(Some(message)) => {
                    if let Some(message) = self.accept(connection, message)? {
                        return Ok(Some(message));
                    }
                }
                // The client ended the session.
                Ok(None) => return Ok(None),
                Err(status) => {
                    self.lost(&status)?;
                    self.current = None;
                }
            }
        }
    }
}

impl Drop for Resumable {
    fn drop(&mut self) {
        self.found();
        self.links.by_key.lock().remove(&self.key);
        self.link.state.lock().resumable = Err(Status::not_found("the session has ended"));
    }
}
