//! What a session says to its client: replies, results in chunks, and completions in as few messages as there can be.

use crate::command_ring::RingSender;
use crate::dispatcher::{SessionId, Tenant};
use crate::execute::{Ended, Got, Report, Told};
use crate::governor::{Budget, Hold};
use crate::metrics::{DataPath, Direction, Metrics};
use crate::objects::Moments;
use crate::ready::Cause;
use crate::transfers::chunks;
use bytes::Bytes;
use fpga_protocol::limits::MAX_INLINE_BYTES;
use fpga_protocol::v1;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::server_message::Kind;
use futures::Stream;
use prost::Message as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::{Code, Status};

/// Completions of one message: far below the largest message that a client takes.
const MAX_COMPLETIONS: usize = 4096;
/// Data inside one message of completions, with the same reason.
const MAX_COMPLETIONS_BYTES: usize = 1 << 20;

/// In the ids of transfers that are not the data of a command: those have the ids of events.
const OTHER_TRANSFER: u64 = 1 << 63;

/// How long a client may take nothing while the manager can hold no more for it.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(15);

/// What a message that waits takes beside its content.
const MESSAGE_BYTES: u64 = 256;

/// A message for a client.
#[derive(Debug, Clone)]
pub enum Said {
    /// One of this process.
    Message(v1::ServerMessage),
    /// One that a tenant process has encoded: nobody here knows what it says.
    Encoded(Bytes),
}

type Item = (Result<Said, Status>, Option<Arc<Hold>>);

/// The sending side.
#[derive(Debug)]
pub struct Outgoing {
    messages: UnboundedSender<Item>,
    /// What takes all messages but the end, once there is one.
    ring: Option<RingSender>,
    budget: Budget,
    metrics: Metrics,
    last_transfer: u64,
    flow: Arc<Flow>,
}

/// How many messages were put where the client takes them, and taken.
#[derive(Debug, Default)]
pub struct Flow {
    put: AtomicU64,
    taken: AtomicU64,
}

/// How far the client had come at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    waiting: u64,
    taken: u64,
}

/// The stream of a session's messages.
#[derive(Debug)]
pub struct Messages {
    stream: UnboundedReceiver<Item>,
    flow: Arc<Flow>,
}

impl Flow {
    /// Another one waits.
    pub fn put(&self) {
        self.put.fetch_add(1, Ordering::Relaxed);
    }

    /// One of them does no more.
    pub fn taken(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    fn progress(&self) -> Progress {
        let taken = self.taken.load(Ordering::Relaxed);
        Progress { waiting: self.put.load(Ordering::Relaxed).saturating_sub(taken), taken }
    }
}

impl Progress {
    /// Whether something waited then and waits now, and nothing was taken since.
    #[must_use]
    pub fn is_stalled_at(self, now: Self) -> bool {
        self.waiting > 0 && now.waiting > 0 && self.taken == now.taken
    }
}

impl Said {
    /// How long it is on the wire.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Message(message) => message.encoded_len(),
            Self::Encoded(bytes) => bytes.len(),
        }
    }
}

impl Outgoing {
    /// Both ends. What waits to be sent is on the budget's account, which bounds it.
    #[must_use]
    pub fn new(budget: Budget, metrics: Metrics) -> (Self, Messages) {
        let (messages, stream) = unbounded_channel();
        let flow = Arc::<Flow>::default();
        let stream = Messages { stream, flow: flow.clone() };
        (Self { messages, ring: None, budget, metrics, last_transfer: 0, flow }, stream)
    }

    /// What is said from now on is on this account.
    pub fn paid_by(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// From now on messages travel in a ring; the end, by the stream still.
    pub fn over(&mut self, ring: RingSender) {
        self.ring = Some(ring);
    }

    /// The first message.
    pub fn welcome(&self, welcome: v1::Welcome) {
        self.send(Kind::Welcome(welcome));
    }

    /// The answer to a call.
    pub fn reply(&self, reply: v1::Reply) {
        self.send(Kind::Reply(reply));
    }

    /// The last message: why the session ends, which is told here too where it is the client's fault.
    pub fn refuse(&self, session: SessionId, tenant: &Tenant, status: Status) {
        if !matches!(status.code(), Code::Cancelled | Code::Unknown | Code::Unavailable) {
            let (tenant, reason) = (tenant.as_str(), status.message());
            tracing::info!(session = session.0, tenant, reason, "Session refused");
        }
        self.end(status);
    }

    /// The last message: why the session ends.
    pub fn end(&self, status: Status) {
        self.put(Err(status), None);
    }

    /// Data of a reply in the form that suits its size; chunks are sent at once.
    pub fn data(&mut self, bytes: Bytes) -> v1::Data {
        self.metrics.count_bytes(Direction::Sent, DataPath::Messages, bytes.len() as u64);
        if bytes.len() <= MAX_INLINE_BYTES {
            return v1::Data { form: Some(Form::Inline(bytes)) };
        }
        self.last_transfer += 1;
        let id = OTHER_TRANSFER | self.last_transfer;
        // Each chunk is a slice of all of it.
        let hold = Arc::new(self.budget.hold(bytes.len() as u64));
        for chunk in chunks(id, &bytes) {
            self.chunk(chunk, hold.clone());
        }
        v1::Data { form: Some(Form::Transfer(v1::Transfer { id, length: bytes.len() as u64 })) }
    }

    fn chunk(&self, chunk: v1::Chunk, hold: Arc<Hold>) {
        self.put_message(v1::ServerMessage { kind: Some(Kind::Chunk(chunk)) }, hold);
    }

    /// All that there is to report, emptied: pieces at once, what has ended in as few messages as can be.
    pub fn reports(&mut self, reports: &mut Vec<Report>) {
        if reports.is_empty() {
            return;
        }
        let mut completions = Vec::with_capacity(reports.len().min(MAX_COMPLETIONS));
        let mut inside = 0;
        for report in reports.drain(..) {
            match report {
                Report::Piece { event, length, offset, data, hold } => {
                    self.metrics.count_bytes(Direction::Sent, DataPath::Messages, data.len() as u64);
                    // The data of a command travels under the name of its event.
                    self.chunk(v1::Chunk { transfer: event.0, length, offset, data }, hold);
                }
                Report::Ended(Ended { told: Told::Yes, .. }) => {}
                Report::Ended(ended) => {
                    if let Some(Got::Bytes(bytes)) = &ended.data {
                        inside += bytes.len();
                        self.metrics.count_bytes(Direction::Sent, DataPath::Messages, bytes.len() as u64);
                    }
                    completions.push(completion(ended));
                }
            }
            if completions.len() == MAX_COMPLETIONS || inside >= MAX_COMPLETIONS_BYTES {
                let completions = std::mem::take(&mut completions);
                self.send(Kind::Completions(v1::Completions { completions }));
                inside = 0;
            }
        }
        if !completions.is_empty() {
            self.send(Kind::Completions(v1::Completions { completions }));
        }
    }

    /// A whole message of another's making.
    pub fn forward(&self, said: Said) {
        let hold = self.budget.hold(said.encoded_len() as u64 + MESSAGE_BYTES);
        self.put(Ok(said), Some(Arc::new(hold)));
    }

    fn send(&self, kind: Kind) {
        let message = v1::ServerMessage { kind: Some(kind) };
        // All that waits counts, small answers too: a client may ask much and read nothing.
        let hold = Arc::new(self.budget.hold(pinned_bytes(&message)));
        self.put_message(message, hold);
    }

    fn put_message(&self, message: v1::ServerMessage, hold: Arc<Hold>) {
        match &self.ring {
            Some(ring) => ring.send(&message, Some(hold)),
            None => self.put(Ok(Said::Message(message)), Some(hold)),
        }
    }

    fn put(&self, item: Result<Said, Status>, hold: Option<Arc<Hold>>) {
        self.flow.put();
        // Where the client has gone there is nobody to tell; the session notices by itself.
        let _ = self.messages.send((item, hold));
    }

    /// Waits until the client has taken nothing for [`STALL_TIMEOUT`] of what waits for it.
    pub async fn stalled(&self) {
        loop {
            let before = self.progress();
            tokio::time::sleep(STALL_TIMEOUT).await;
            if before.is_stalled_at(self.progress()) {
                return;
            }
        }
    }

    /// How far the client has come, by the stream and by the ring.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let stream = self.flow.progress();
        let ring = self.ring.as_ref().map(|ring| ring.flow().progress()).unwrap_or_default();
        Progress { waiting: stream.waiting + ring.waiting, taken: stream.taken + ring.taken }
    }

    /// Waits until the client has gone.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }
}

/// What a message takes in memory until it is sent.
fn pinned_bytes(message: &v1::ServerMessage) -> u64 {
    let encoded = message.encoded_len() as u64;
    let decoded = match &message.kind {
        Some(Kind::Completions(all)) => (all.completions.capacity() * size_of::<v1::Completion>()) as u64,
        Some(Kind::Chunk(_)) => 0,
        // Names and numbers of kernels and devices: structures that are larger than their encoding.
        _ => 4 * encoded,
    };
    MESSAGE_BYTES + encoded + decoded
}

fn completion(ended: Ended) -> v1::Completion {
    let by_user_event = ended.status < 0 && ended.cause == Cause::UserEvent;
    let Ended { event, status, moments, data, .. } = ended;
    let Moments { queued, submitted, started, ended } = moments.unwrap_or_default();
    let form = data.map(|data| match data {
        Got::Bytes(bytes) => Form::Inline(bytes),
        Got::Pieces(length) => Form::Transfer(v1::Transfer { id: event.0, length }),
    });
    v1::Completion {
        event: event.0,
        status,
        queued_ns: queued,
        submitted_ns: submitted,
        started_ns: started,
        ended_ns: ended,
        data: form.map(|form| v1::Data { form: Some(form) }),
        by_user_event,
    }
}

impl Stream for Messages {
    type Item = Result<Said, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = std::task::ready!(self.stream.poll_recv(context));
        self.flow.taken();
        Poll::Ready(item.map(|(message, _hold)| message))
    }
}
