//! Messages from a session to its client: replies, results in chunks, and completions in as few messages as
//! possible.

use crate::command_ring::RingSender;
use crate::dependencies::Cause;
use crate::flow::Flow;
use crate::flow::Progress;
use crate::governor::{Budget, Hold};
use crate::metrics::{DataPath, Direction, Metrics};
use crate::moments::Moments;
use crate::report::{Ended, Got, Report, Told};
use crate::transfers::chunks;
use bytes::Bytes;
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SessionId;
use fpga_protocol::limits::MAX_INLINE_BYTES;
use fpga_protocol::v1;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::server_message::Kind;
use futures::Stream;
use prost::Message as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::{Code, Status};

/// Maximum number of completions in one message, which keeps it far below the largest message that a client
/// accepts.
const MAX_COMPLETIONS: usize = 4096;
/// Maximum number of bytes of data in one message of completions, for the same reason.
const MAX_COMPLETIONS_BYTES: usize = 1 << 20;

/// Most bytes of the id of an earlier command in a completion: in memory, and encoded.
const EARLIER_BYTES: usize = 10;

/// Bit that is set in the ids of transfers that are not the data of a command. The data of a command has the id of
/// its event.
const OTHER_TRANSFER: u64 = 1 << 63;

/// Time after which a client that takes no messages is stalled, if the manager can hold no more for it.
pub const STALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Bytes that a waiting message takes besides its content.
const MESSAGE_BYTES: u64 = 256;

/// A message to a client.
#[derive(Debug, Clone)]
pub enum Said {
    /// A message of this process.
    Message(v1::ServerMessage),
    /// A message that a tenant process has encoded; the manager does not decode it.
    Encoded(Bytes),
}

type Item = (Result<Said, Status>, Option<Arc<Hold>>);

/// The sending side of a session's messages.
#[derive(Debug)]
pub struct Outgoing {
    messages: UnboundedSender<Item>,
    /// The ring that takes all messages except the final status; `None` before the session has a ring.
    ring: Option<RingSender>,
    budget: Budget,
    metrics: Metrics,
    last_transfer: u64,
    flow: Arc<Flow>,
}

/// The stream of a session's messages.
#[derive(Debug)]
pub struct Messages {
    stream: UnboundedReceiver<Item>,
    flow: Arc<Flow>,
}

impl Said {
    /// Length of the encoded message in bytes.
    #[must_use]
    pub fn encoded_len(&self) -> usize {
        match self {
            Self::Message(message) => message.encoded_len(),
            Self::Encoded(bytes) => bytes.len(),
        }
    }
}

impl Outgoing {
    /// Makes both ends. Messages that wait to be sent are charged to `budget`, which bounds them.
    #[must_use]
    pub fn new(budget: Budget, metrics: Metrics) -> (Self, Messages) {
        let (messages, stream) = unbounded_channel();
        let flow = Arc::<Flow>::default();
        let stream = Messages { stream, flow: flow.clone() };
        (Self { messages, ring: None, budget, metrics, last_transfer: 0, flow }, stream)
    }

    /// Charges messages to `budget` from now on.
    pub fn paid_by(&mut self, budget: Budget) {
        self.budget = budget;
    }

    /// Sends messages through a ring from now on. The final status still goes through the stream.
    pub fn over(&mut self, ring: RingSender) {
        self.ring = Some(ring);
    }

    /// Sends the first message.
    pub fn welcome(&self, welcome: v1::Welcome) {
        self.send(Kind::Welcome(welcome));
    }

    /// Asks the client to give the slot of its lease up.
    pub fn yields(&self) {
        self.send(Kind::Yield(v1::Yield {}));
    }

    /// Sends the answer to a call.
    pub fn reply(&self, reply: v1::Reply) {
        self.send(Kind::Reply(reply));
    }

    /// Sends `status` as the last message. Logs the reason if it is the client's fault.
    pub fn refuse(&self, session: SessionId, tenant: &Tenant, status: Status) {
        if !matches!(status.code(), Code::Cancelled | Code::Unknown | Code::Unavailable) {
            let (tenant, reason) = (tenant.as_str(), status.message());
            tracing::info!(session = session.0, tenant, reason, "Session refused");
        }
        self.end(status);
    }

    /// Sends `status` as the last message.
    pub fn end(&self, status: Status) {
        self.put(Err(status), None);
    }

    /// Puts the data of a reply inline if it is short. Sends it in chunks otherwise, at once, and returns a
    /// reference to them.
    pub fn data(&mut self, bytes: Bytes) -> v1::Data {
        self.metrics.count_bytes(Direction::Sent, DataPath::Messages, bytes.len() as u64);
        if bytes.len() <= MAX_INLINE_BYTES {
            return v1::Data { form: Some(Form::Inline(bytes)) };
        }
        self.last_transfer += 1;
        let id = OTHER_TRANSFER | self.last_transfer;
        // All chunks share one hold, since each is a slice of `bytes`.
        let hold = Arc::new(self.budget.hold(bytes.len() as u64));
        for chunk in chunks(id, &bytes) {
            self.chunk(chunk, hold.clone());
        }
        v1::Data { form: Some(Form::Transfer(v1::Transfer { id, length: bytes.len() as u64 })) }
    }

    fn chunk(&self, chunk: v1::Chunk, hold: Arc<Hold>) {
        self.put_message(v1::ServerMessage { kind: Some(Kind::Chunk(chunk)) }, hold);
    }

    /// Sends and removes all reports: pieces at once, and completions in as few messages as possible.
    pub fn reports(&mut self, reports: &mut Vec<Report>) {
        if reports.is_empty() {
            return;
        }
        let mut completions = Vec::with_capacity(reports.len().min(MAX_COMPLETIONS));
        let mut inside = 0;
        for report in reports.drain(..) {
            match report {
                Report::Piece { event, length, offset, data, hold } => {
                    // An earlier read may give its bytes to the same memory.
                    self.completions(&mut completions);
                    inside = 0;
                    self.metrics.count_bytes(Direction::Sent, DataPath::Messages, data.len() as u64);
                    // The transfer of a command's data has the id of the command's event.
                    self.chunk(v1::Chunk { transfer: event.0, length, offset, data }, hold);
                }
                Report::Printed(text) => {
                    self.completions(&mut completions);
                    inside = 0;
                    self.send(Kind::Printed(v1::Printed { text }));
                }
                Report::Ended(Ended { told: Told::Yes, .. }) => {}
                Report::Ended(ended) => {
                    inside += ended.earlier.len() * EARLIER_BYTES;
                    if let Some(Got::Bytes(bytes)) = &ended.data {
                        inside += bytes.len();
                        self.metrics.count_bytes(Direction::Sent, DataPath::Messages, bytes.len() as u64);
                    }
                    completions.push(completion(ended));
                }
            }
            if completions.len() == MAX_COMPLETIONS || inside >= MAX_COMPLETIONS_BYTES {
                self.completions(&mut completions);
                inside = 0;
            }
        }
        self.completions(&mut completions);
    }

    fn completions(&mut self, completions: &mut Vec<v1::Completion>) {
        if !completions.is_empty() {
            let completions = std::mem::take(completions);
            self.send(Kind::Completions(v1::Completions { completions }));
        }
    }

    /// Sends a whole message that another process made.
    pub fn forward(&self, said: Said) {
        let hold = self.budget.hold(said.encoded_len() as u64 + MESSAGE_BYTES);
        self.put(Ok(said), Some(Arc::new(hold)));
    }

    fn send(&self, kind: Kind) {
        let message = v1::ServerMessage { kind: Some(kind) };
        // Small answers count too, since a client may ask for many and read none.
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
        // If the client has gone, the session notices by itself.
        let _ = self.messages.send((item, hold));
    }

    /// Waits until messages have waited for [`STALL_TIMEOUT`] and the client has taken none of them.
    pub async fn stalled(&self) {
        loop {
            let before = self.progress();
            tokio::time::sleep(STALL_TIMEOUT).await;
            if before.is_stalled_at(self.progress()) {
                return;
            }
        }
    }

    /// How many messages wait for the client, and how many it has taken, over the stream and the ring.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let stream = self.flow.progress();
        let ring = self.ring.as_ref().map(|ring| ring.flow().progress()).unwrap_or_default();
        stream + ring
    }

    /// Waits until the client has disconnected.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }
}

/// Bytes of memory that a message takes until it is sent.
fn pinned_bytes(message: &v1::ServerMessage) -> u64 {
    let encoded = message.encoded_len() as u64;
    let decoded = match &message.kind {
        Some(Kind::Completions(all)) => {
            let earlier =
                all.completions.iter().map(|completion| completion.earlier.capacity()).sum::<usize>();
            (all.completions.capacity() * size_of::<v1::Completion>() + earlier * size_of::<u64>()) as u64
        }
        Some(Kind::Chunk(_)) => 0,
        // Descriptions of kernels and devices: the structures are larger than their encoding.
        _ => 4 * encoded,
    };
    MESSAGE_BYTES + encoded + decoded
}

fn completion(ended: Ended) -> v1::Completion {
    let by_user_event = ended.status < 0 && ended.cause == Cause::UserEvent;
    let Ended { event, status, moments, data, earlier, .. } = ended;
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
        earlier: earlier.into_iter().map(|event| event.0).collect(),
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
