//! What a session says to its client: replies, results in chunks, and completions in as few messages as there can be.

use crate::budget::{Budget, Hold};
use crate::command_ring::RingSender;
use crate::dispatcher::{SessionId, Tenant};
use crate::execute::{Ended, Got, Report, Told};
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

type Item = (Result<v1::ServerMessage, Status>, Option<Hold>);

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

/// How many messages were put into the stream, and taken out of it.
#[derive(Debug, Default)]
struct Flow {
    put: AtomicU64,
    taken: AtomicU64,
}

/// The stream of a session's messages.
#[derive(Debug)]
pub struct Messages {
    stream: UnboundedReceiver<Item>,
    flow: Arc<Flow>,
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
        for chunk in chunks(id, &bytes) {
            self.chunk(chunk);
        }
        v1::Data { form: Some(Form::Transfer(v1::Transfer { id, length: bytes.len() as u64 })) }
    }

    fn chunk(&self, chunk: v1::Chunk) {
        self.send(Kind::Chunk(chunk));
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
                Report::Piece { event, length, offset, data } => {
                    self.metrics.count_bytes(Direction::Sent, DataPath::Messages, data.len() as u64);
                    // The data of a command travels under the name of its event.
                    self.chunk(v1::Chunk { transfer: event.0, length, offset, data });
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
    pub fn forward(&self, message: v1::ServerMessage) {
        let hold = self.budget.hold(message.encoded_len() as u64);
        self.put(Ok(message), Some(hold));
    }

    fn send(&self, kind: Kind) {
        let message = v1::ServerMessage { kind: Some(kind) };
        // All that waits counts, small answers too: a client may ask much and read nothing.
        let hold = Some(self.budget.hold(message.encoded_len() as u64));
        match &self.ring {
            Some(ring) => ring.send(&message, hold),
            None => self.put(Ok(message), hold),
        }
    }

    fn put(&self, item: Result<v1::ServerMessage, Status>, hold: Option<Hold>) {
        self.flow.put.fetch_add(1, Ordering::Relaxed);
        // Where the client has gone there is nobody to tell; the session notices by itself.
        let _ = self.messages.send((item, hold));
    }

    /// Waits until the client has taken nothing for [`STALL_TIMEOUT`] of what waits for it in the stream.
    pub async fn stalled(&self) {
        loop {
            let taken = self.flow.taken.load(Ordering::Relaxed);
            tokio::time::sleep(STALL_TIMEOUT).await;
            let waits = self.flow.put.load(Ordering::Relaxed) != taken;
            if waits && self.flow.taken.load(Ordering::Relaxed) == taken {
                return;
            }
        }
    }

    /// Waits until the client has gone.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }
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
    type Item = Result<v1::ServerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let item = std::task::ready!(self.stream.poll_recv(context));
        self.flow.taken.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(item.map(|(message, _hold)| message))
    }
}
