//! A session's way to its client where that may be lost and found again (T-4): what both sides said is numbered, kept
//! until the other has it, and said again over the next connection, so that each message counts exactly once.
//!
//! The session sees none of it: its messages come and go as over one connection. Nothing outlives the manager: its end
//! is the end of all its sessions.

mod lines;

pub use lines::{Line, Lines};

use crate::dispatcher::Tenant;
use crate::governor::{Budget, Hold};
use crate::metrics::Metrics;
use crate::objects::lock;
use crate::outgoing::{Messages, Said};
use crate::segments::Key;
use crate::server::frames::GrpcFrames;
use crate::server::read_ahead::TrackedBody;
use crate::session::Incoming;
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::client_message::Kind;
use prost::Message as _;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};
use tonic::Status;

/// The most bytes that are kept for a client that doesn't say what it has, or less where memory is scarce. Beyond, its
/// session can't be resumed.
const MAX_KEPT_BYTES: u64 = 64 << 20;
/// What a message that is kept takes beside its content.
const KEPT_BYTES: u64 = 128;
/// The most messages, for the same reason.
const MAX_KEPT: usize = 1 << 16;
/// After so many messages, or bytes of them, the client is told that they came.
const ACK_EVERY: u64 = 64;
const ACK_BYTES: usize = 1 << 20;

/// The messages of one connection.
pub type Client = GrpcFrames<TrackedBody<hyper::body::Incoming>>;

/// The links of a manager by their keys. Clones share them.
#[derive(Debug, Clone)]
pub struct Links {
    by_key: Arc<Mutex<HashMap<[u8; 32], Arc<Link>>>>,
    grace: Duration,
    metrics: Metrics,
}

/// One session's link.
#[derive(Debug)]
pub struct Link {
    tenant: Tenant,
    state: Mutex<State>,
    /// Another connection is there.
    attached: Notify,
}

#[derive(Debug)]
struct State {
    /// Counts connections.
    connection: u64,
    /// The latest one's messages, until [`Resumable`] takes them.
    next: Option<Client>,
    /// How many messages the session has taken.
    received: u64,
    /// Of these, how many the client was told of, and bytes since.
    acknowledged: u64,
    unacknowledged_bytes: usize,
    /// What the session says.
    source: Messages,
    /// What was said and the client may lack; the first has this number.
    kept: VecDeque<(Said, Hold)>,
    first: u64,
    kept_bytes: u64,
    budget: Budget,
    /// Number of the message that goes next over the latest connection.
    cursor: u64,
    /// Who sends over the latest connection.
    waker: Option<Waker>,
    resumable: Result<(), Status>,
}

/// What comes from the client, over one connection after the other.
#[derive(Debug)]
pub struct Resumable {
    links: Links,
    key: [u8; 32],
    link: Arc<Link>,
    current: Option<(u64, Client)>,
    /// Until when the client may come back.
    until: Option<Instant>,
}

impl Links {
    /// None; clients get so long to come back. Zero: no session can be resumed.
    #[must_use]
    pub fn new(grace: Duration, metrics: Metrics) -> Self {
        Self { by_key: Arc::default(), grace, metrics }
    }

    /// Whether sessions can be resumed at all.
    #[must_use]
    pub fn are_on(&self) -> bool {
        !self.grace.is_zero()
    }

    /// A new session's link over this connection: what comes by it, and what goes.
    ///
    /// # Errors
    /// Where the system has no random numbers.
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
        };
        let link = Arc::new(Link { tenant, state: Mutex::new(state), attached: Notify::new() });
        lock(&self.by_key).insert(key, link.clone());
        let greeting = Greeting { key: Bytes::copy_from_slice(&key), grace: self.grace };
        let line = Line::new(link.clone(), 1, Some(greeting), None);
        Ok((Resumable { links: self.clone(), key, link, current: Some((1, client)), until: None }, line))
    }

    /// Goes on with a session over another connection; `received` is how many messages the client has.
    ///
    /// # Errors
    /// With what the client is refused.
    pub fn resume(&self, tenant: &Tenant, key: &[u8], received: u64, client: Client) -> Result<Line, Status> {
        let unknown =
            || Status::not_found("there is no such session: it ended, or the device manager is another");
        let key: [u8; 32] = key.try_into().map_err(|_| unknown())?;
        // Nobody learns of another tenant's sessions.
        let link = lock(&self.by_key).get(&key).filter(|link| link.tenant == *tenant).cloned();
        let link = link.ok_or_else(unknown)?;
        let (connection, had) = link.attach(received, client)?;
        self.metrics.sessions_resumed.inc();
        tracing::debug!(tenant = tenant.as_str(), connection, "A session goes on over another connection");
        let welcome = v1::Welcome { received: had, ..v1::Welcome::default() };
        Ok(Line::new(link, connection, None, Some(welcome)))
    }
}

/// What a first Welcome tells besides.
#[derive(Debug)]
struct Greeting {
    key: Bytes,
    grace: Duration,
}

impl Link {
    /// The number of the new connection, and how many messages the session has taken.
    fn attach(&self, received: u64, client: Client) -> Result<(u64, u64), Status> {
        let mut state = lock(&self.state);
        state.resumable.clone()?;
        state.has(received)?;
        state.connection += 1;
        state.next = Some(client);
        state.cursor = state.first;
        // Told by the Welcome.
        (state.acknowledged, state.unacknowledged_bytes) = (state.received, 0);
        let told = (state.connection, state.received);
        let old = state.waker.take();
        drop(state);
        if let Some(waker) = old {
            waker.wake();
        }
        self.attached.notify_one();
        Ok(told)
    }
}

impl State {
    /// The client has this many messages.
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

    /// Keeps what is said now, as long as that is little.
    fn keep(&mut self, said: &Said) {
        self.cursor += 1;
        let bytes = said.encoded_len() as u64 + KEPT_BYTES;
        let most = MAX_KEPT_BYTES.min(self.budget.most() / 16);
        let hold = self.budget.try_hold(bytes).ok().filter(|_| {
            // These bytes go only when the client says that it has them.
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

    /// The session takes a message of `bytes`. Returns who has to tell the client.
    fn take(&mut self, bytes: usize) -> Option<Waker> {
        self.received += 1;
        self.unacknowledged_bytes += bytes;
        if self.ack_is_due() { self.waker.take() } else { None }
    }
}

/// How many messages the client has, where the message says that and nothing else: then it is so short.
fn acknowledged(message: &Bytes) -> Option<u64> {
    /// A field of two bytes and a number.
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
    /// A message of the connection with this number; nothing where it is the link's own, or of a connection that is over.
    fn accept(&self, connection: u64, message: Bytes) -> Result<Option<Bytes>, Status> {
        let mut state = lock(&self.link.state);
        if state.connection != connection {
            // It comes again: who resumed was told that it was not taken.
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

    /// The connection is lost; until when the client may come back.
    fn lost(&mut self, why: &Status) -> Result<(), Status> {
        lock(&self.link.state).resumable.clone()?;
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
                let mut state = lock(&self.link.state);
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
            if lock(&self.link.state).connection != connection {
                continue;
            }
            match message {
                Ok(Some(message)) => {
                    if let Some(message) = self.accept(connection, message)? {
                        return Ok(Some(message));
                    }
                }
                // The client ended it.
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
        lock(&self.links.by_key).remove(&self.key);
        lock(&self.link.state).resumable = Err(Status::not_found("the session has ended"));
    }
}
