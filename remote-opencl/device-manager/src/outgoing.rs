//! What a session says to its client: replies, results in chunks, and completions in as few messages as there can be.

use crate::budget::{Budget, Hold};
use crate::command_ring::RingSender;
use crate::dispatcher::{SessionId, Tenant};
use crate::execute::{Ended, Got, Report};
use crate::metrics::{DataPath, Direction, Metrics};
use crate::transfers::chunks;
use bytes::Bytes;
use fpga_protocol::limits::MAX_INLINE_BYTES;
use fpga_protocol::v1;
use fpga_protocol::v1::data::Form;
use fpga_protocol::v1::server_message::Kind;
use futures::Stream;
use prost::Message as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::{Code, Status};

/// Completions of one message: far below the largest message that a client takes.
const MAX_COMPLETIONS: usize = 4096;
/// Data inside one message of completions, with the same reason.
const MAX_COMPLETIONS_BYTES: usize = 1 << 20;

/// In the ids of transfers that are not the data of a command: those have the ids of events.
const OTHER_TRANSFER: u64 = 1 << 63;

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
}

/// The stream of a session's messages.
#[derive(Debug)]
pub struct Messages(UnboundedReceiver<Item>);

impl Outgoing {
    /// Both ends. What waits to be sent is on the budget's account, which bounds it.
    #[must_use]
    pub fn new(budget: Budget, metrics: Metrics) -> (Self, Messages) {
        let (messages, stream) = unbounded_channel();
        (Self { messages, ring: None, budget, metrics, last_transfer: 0 }, Messages(stream))
    }

    /// From now on messages travel in a ring; the end, by the stream still.
    pub fn over(&mut self, ring: RingSender) {
        self.ring = Some(ring);
    }

    /// The first message.
    pub fn welcome(&self, welcome: v1::Welcome) {
        self.send(Kind::Welcome(welcome), None);
    }

    /// The answer to a call.
    pub fn reply(&self, reply: v1::Reply) {
        self.send(Kind::Reply(reply), None);
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
        let _ = self.messages.send((Err(status), None));
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
        let hold = self.budget.hold(chunk.data.len() as u64);
        self.send(Kind::Chunk(chunk), Some(hold));
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
                self.send_completions(completions, inside);
                inside = 0;
            }
        }
        if !completions.is_empty() {
            self.send_completions(completions, inside);
        }
    }

    fn send_completions(&self, completions: Vec<v1::Completion>, inside: usize) {
        let hold = self.budget.hold(inside as u64);
        self.send(Kind::Completions(v1::Completions { completions }), Some(hold));
    }

    /// A whole message of another's making.
    pub fn forward(&self, message: v1::ServerMessage) {
        let hold = self.budget.hold(message.encoded_len() as u64);
        let _ = self.messages.send((Ok(message), Some(hold)));
    }

    fn send(&self, kind: Kind, hold: Option<Hold>) {
        let message = v1::ServerMessage { kind: Some(kind) };
        match &self.ring {
            Some(ring) => ring.send(&message, hold),
            // Where the client has gone there is nobody to tell; the session notices by itself.
            None => drop(self.messages.send((Ok(message), hold))),
        }
    }

    /// Waits until the client has gone.
    pub async fn closed(&self) {
        self.messages.closed().await;
    }
}

fn completion(ended: Ended) -> v1::Completion {
    let Ended { event, status, moments, data, .. } = ended;
    let form = data.map(|data| match data {
        Got::Bytes(bytes) => Form::Inline(bytes),
        Got::Pieces(length) => Form::Transfer(v1::Transfer { id: event.0, length }),
    });
    v1::Completion {
        event: event.0,
        status,
        queued_ns: moments.queued,
        submitted_ns: moments.submitted,
        started_ns: moments.started,
        ended_ns: moments.ended,
        data: form.map(|form| v1::Data { form: Some(form) }),
    }
}

impl Stream for Messages {
    type Item = Result<v1::ServerMessage, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context).map(|item| item.map(|(message, _hold)| message))
    }
}
