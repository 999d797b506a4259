//! A session: the messages of one client in their order, its tasks, and the cleanup after it.
//!
//! A session runs on the thread of its connection and never waits for the vendor: completions, grants and ends of
//! builds arrive in its inbox. However the client goes, waiting tasks are then dropped, running tasks are awaited,
//! and after that the session's objects are released.

mod closing;
mod ends;
mod messages;
mod on_board;
mod serving;
mod shared;
mod tasks;
mod violation;

pub use shared::Shared;

use crate::backlog::Backlog;
use crate::calls::Waiting;
use crate::clock;
use crate::command_ring::{self, RingReceiver, WithRing};
use crate::commands::Body;
use crate::dependencies::{Command, DependencyTracker};
use crate::execute::{Executor, Launches, Measured};
use crate::gate::{Asker, ReconfigurationRefusal};
use crate::governor::{Budget, Lasting};
use crate::includes::SessionIncludes;
use crate::incoming::Incoming;
use crate::locality::Locality;
use crate::objects::Objects;
use crate::outgoing::Outgoing;
use crate::quiesce::InUse;
use crate::quotas::{Account, Charge};
use crate::report::Report;
use crate::router::{Inbox, Input};
use crate::segments::{FdChannel, Key, Segments};
use crate::traced::Traced;
use crate::transfers::Transfers;
use bytes::Bytes;
use ends::Ends;
use fpga_board::dispatch::{Grant, TaskId, Tenant};
use fpga_board::slots::SessionId;
use fpga_core::bitstream::Digest;
use fpga_protocol::segments::RING_WORDS;
use fpga_protocol::v1;
use on_board::OnBoard;
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;
use tonic::Status;

/// Maximum number of inputs that are handled before reports are sent to the client.
const MAX_ROUND: usize = 256;
/// Error for a client that reads no messages.
pub const READS_NOTHING: &str = "the client reads nothing, and the device manager can hold no more for it";
/// Error for a session whose token was revoked.
pub const REVOKED: &str = "the token of this session was revoked";
/// Error for sessions that are open when the manager ends.
const LAST_STATUS: &str =
    "the device manager ends, and does not wait for sessions longer than its --drain-timeout";
/// Error for a client that does not continue a transfer while others wait for memory.
const OWES_DATA: &str =
    "the client does not go on with a transfer, and others wait for the memory that it holds";

/// A decoded message.
#[derive(Debug)]
struct Message {
    message: v1::ClientMessage,
    /// Length of the encoded message, and the bytes that its commands take until they have ended.
    encoded_bytes: usize,
    kept_bytes: u64,
    /// When the message began to wait for memory.
    waits_since: Option<Instant>,
}

/// A session.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    id: SessionId,
    tenant: Tenant,
    account: Account,
    /// The charges for tasks that have not ended.
    charges: HashMap<TaskId, Charge>,
    traced: Traced,
    inbox: Inbox,
    outgoing: Outgoing,
    budget: Budget,
    objects: Objects,
    transfers: Transfers,
    /// The connection for descriptors, and whether the client may have one.
    side: Option<FdChannel>,
    locality: Locality,
    dependencies: DependencyTracker<Box<Body>>,
    executor: Executor<Ends>,
    /// Tasks that have not started. The first one may be loading.
    backlog: Backlog<Submitted>,
    loading: Option<Loading>,
    /// When the reconfiguration of the whole board for the first task began.
    switching: Option<Instant>,
    /// The uses of the board by running tasks.
    uses: HashMap<TaskId, InUse>,
    /// The gate's decision on a program, until the board is open. Nobody holds the board while the gate is asked, which may
    /// take long.
    decided: Option<(Box<Waiting>, Result<(), ReconfigurationRefusal>)>,
    /// A message that waits until the board is open or memory is free.
    put_off: Option<Message>,
    /// Number of messages that were handled.
    messages: u64,
    /// Memory of the tables of events, beyond the first block.
    event_tables: Vec<Lasting>,
    building: Building,
    /// The load of the board that runs on its own thread.
    board_load: Option<BoardLoad>,
    includes: SessionIncludes,
    /// The call that a task without commands makes once it has its slot, and the task that holds its slot until a
    /// build or a load has ended.
    on_board: Option<(TaskId, OnBoard)>,
    holds_for_build: Option<TaskId>,
    /// A violation of the protocol by a call that had to wait.
    violation: Option<violation::Violation>,
    asker: Asker,
    /// Reports that have not been sent to the client.
    reports: Vec<Report>,
    ring: Ring,
    proof: Proof,
    tasks: Tasks,
    closed: Closed,
}

/// A task that has not started.
#[derive(Debug)]
struct Submitted {
    commands: Vec<Command<Box<Body>>>,
    /// When the task was submitted, in ns of the manager's clock.
    at: u64,
}

/// A simulated reconfiguration.
#[derive(Debug, Clone, Copy)]
struct Loading {
    since: Instant,
    until: Instant,
}

/// A load of the board by the making of a program. Tasks that are granted meanwhile wait for it.
#[derive(Debug)]
struct BoardLoad {
    /// The grant of the task that makes the program.
    grant: Grant,
    /// The reconfiguration that it is; `None` if its image was on the board.
    loading: Option<Loading>,
}

/// Whether a build, a load of the board, or a question to the gate runs on its own thread. Later messages wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Building {
    Yes,
    No,
}

/// Whether the session's messages travel in a command ring.
#[derive(Debug)]
enum Ring {
    /// Messages travel on the stream.
    None,
    /// The next message travels in the ring.
    New(RingReceiver),
    /// Messages travel in the ring.
    InUse,
}

/// The owner of a session.
#[derive(Debug)]
pub struct Who {
    /// The session's id in this manager.
    pub id: SessionId,
    /// The identity that the client has proved.
    pub tenant: Tenant,
    /// Digest of the token by which the client has proved it; `None` if another proof counts, or another process knows.
    pub token: Option<Digest>,
    /// The tenant's account.
    pub account: Account,
    /// Where the client is.
    pub locality: Locality,
}

/// Whether the proof of the session's tenant still counts.
#[derive(Debug)]
enum Proof {
    Good,
    /// It does not; the session ends with this status.
    Revoked(Box<Status>),
}

/// Whether the session may start tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tasks {
    Start,
    /// The client is to give its slot up: later commands are refused.
    Refused,
}

/// Whether the cleanup of the session is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    Yes,
    No,
}

impl Ring {
    fn attach_to(&mut self, client: &mut WithRing<impl Incoming>) {
        if let Self::New(_) = self
            && let Self::New(receiver) = std::mem::replace(self, Self::InUse)
        {
            client.attach(receiver);
        }
    }
}

impl Session {
    /// Makes a session for `who`. Returns it with the receiver of its inputs.
    pub fn new(
        shared: Arc<Shared>,
        who: Who,
        budget: Budget,
        outgoing: Outgoing,
    ) -> (Self, UnboundedReceiver<Input>) {
        let Who { id, tenant, token, account, locality } = who;
        let (sender, input) = unbounded_channel();
        let inbox = Inbox::new(sender);
        let transfers = Transfers::new(Segments::new(budget.clone()), account.clone());
        let asker = Asker {
            gate: shared.config.gate.clone(),
            dispatcher: shared.config.dispatcher.clone(),
            catalogue: shared.config.catalogue.clone(),
            metrics: shared.config.metrics.clone(),
            device: shared.config.reports.device().to_owned(),
            session: id,
            tenant: tenant.clone(),
            token,
            allowed: Arc::default(),
        };
        let measured = if shared.config.trace.is_on() { Measured::All } else { Measured::Shown };
        let launches = Launches { health: shared.config.health.clone(), tenant: tenant.clone() };
        let traced = Traced::new(shared.config.tracer.clone(), &tenant);
        let mut session = Self {
            id,
            tenant,
            traced,
            account,
            charges: HashMap::new(),
            executor: Executor::new(
                shared.helper_thread.clone(),
                measured,
                Ends { inbox: inbox.clone(), shared: shared.clone(), session: id },
            ),
            inbox,
            outgoing,
            budget,
            objects: Objects::default(),
            transfers,
            side: None,
            locality,
            dependencies: DependencyTracker::default(),
            backlog: Backlog::default(),
            loading: None,
            switching: None,
            uses: HashMap::new(),
            decided: None,
            put_off: None,
            messages: 0,
            event_tables: Vec::new(),
            building: Building::No,
            board_load: None,
            includes: shared.config.includes.of_session(),
            on_board: None,
            holds_for_build: None,
            violation: None,
            asker,
            reports: Vec::new(),
            ring: Ring::None,
            proof: Proof::Good,
            tasks: Tasks::Start,
            closed: Closed::No,
            shared,
        };
        session.executor.tell_of_launches(launches);
        if let Some(board) = session.shared.config.model.clone() {
            session.executor.model_by(board);
        }
        (session, input)
    }

    /// The session's id.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Serves the client until the client or the manager ends the session, then cleans up.
    pub async fn run(mut self, mut input: UnboundedReceiver<Input>, client: impl Incoming) {
        let mut client = WithRing::new(client);
        let side_key = self.side_key();
        let storage_alignment =
            if side_key.is_empty() { None } else { self.shared.inventory.storage_alignment() };
        self.outgoing.welcome(v1::Welcome {
            session: self.id.0.to_string(),
            platforms: self.shared.inventory.platforms().to_vec(),
            manager_ns: clock::now_ns(),
            buffers_in_segments: storage_alignment.is_some(),
            storage_alignment: storage_alignment.and_then(|bytes| u32::try_from(bytes).ok()).unwrap_or(0),
            ring_words: if side_key.is_empty() || !command_ring::is_wanted() { 0 } else { RING_WORDS },
            ring_futex: true,
            side_key,
            buffer_rects: true,
            unwatched_commands: true,
            host_pipes: true,
            traces: self.shared.config.tracer.is_on(),
            usm: self.shared.inventory.usm().to_vec(),
            usm_alignment: self
                .shared
                .inventory
                .usm_alignment()
                .and_then(|bytes| u32::try_from(bytes).ok())
                .unwrap_or(0),
            ..v1::Welcome::default()
        });
        self.shared.router.add(self.id, self.inbox.clone());
        let last = self.serve(&mut input, &mut client).await;
        drop(client);
        self.close(&mut input).await;
        if let Some(status) = last {
            self.outgoing.refuse(self.id, &self.tenant, status);
        }
    }

    /// The key that opens the side socket; empty if no memory can be shared.
    fn side_key(&self) -> Bytes {
        let Locality::SharesMemory(process) = self.locality else { return Bytes::new() };
        match Key::random() {
            Ok(key) => {
                let bytes = Bytes::copy_from_slice(key.bytes());
                self.shared.sides.expect(self.id.0, key, process, self.inbox.clone());
                bytes
            }
            Err(error) => {
                tracing::warn!(%error, "The system has no random numbers: no memory is shared");
                Bytes::new()
            }
        }
    }
}
