//! One session: a client's messages in their order, its tasks, and the cleaning up when it has gone.
//!
//! All of it happens on the thread of the session's connection. It never waits for the vendor: completions, grants and
//! the ends of builds come through its inbox. When the client goes, whatever way, waiting tasks are dropped, running
//! ones come to their end, and only then the session's objects are released.

use crate::backlog::Backlog;
use crate::budget::{Budget, HARD_LIMIT, SOFT_LIMIT};
use crate::calls::{CallError, Calls, Outcome, reply};
use crate::clock;
use crate::commands::{self, Body};
use crate::config::Config;
use crate::dispatcher::{Grant, Load, SessionId, TaskId, TaskRequest, Tenant};
use crate::execute::{Ended, Executor, Report};
use crate::inventory::Inventory;
use crate::metrics::Direction;
use crate::objects::{AddError, Objects};
use crate::outgoing::Outgoing;
use crate::ready::{Command, EventId, Ready, Step, UsedTwice};
use crate::reporting::Reconfigured;
use crate::router::{Inbox, Input, Router};
use crate::shutdown::Shutdown;
use crate::task;
use crate::transfers::{TransferError, Transfers};
use crate::vendor::ClError;
use fpga_protocol::limits::PROTOCOL_VERSION;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::client_message::Kind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until};
use tonic::{Code, Status};

/// How long a client may take for its Hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);
/// Most events of a session that it has not released.
const MAX_EVENTS: usize = 1 << 20;
/// Most commands of a session that wait aside for user events.
const MAX_DEFERRED: usize = 1 << 16;
/// Most commands of one Flush.
const MAX_FLUSH: usize = 1 << 14;
/// Most input that is taken before the client is told.
const MAX_ROUND: usize = 256;
/// What clients hear at the end.
const LAST_STATUS: &str = "the device manager is stopping";

/// What all sessions of a manager share.
#[derive(Debug)]
pub struct Shared {
    /// The manager's parts and settings.
    pub config: Config,
    /// Its devices.
    pub inventory: Inventory,
    /// Its sessions.
    pub router: Router,
    /// Whether it is to end.
    pub shutdown: Shutdown,
}

/// Where a client's messages come from.
pub trait Incoming: Send {
    /// The next one; nothing at the end. Can be dropped and called again without losing one.
    fn next(&mut self) -> impl Future<Output = Result<Option<v1::ClientMessage>, Status>> + Send;
}

impl Incoming for tonic::Streaming<v1::ClientMessage> {
    async fn next(&mut self) -> Result<Option<v1::ClientMessage>, Status> {
        self.message().await
    }
}

/// One session.
#[derive(Debug)]
pub struct Session {
    shared: Arc<Shared>,
    id: SessionId,
    tenant: Tenant,
    inbox: Inbox,
    outgoing: Outgoing,
    budget: Budget,
    objects: Objects,
    transfers: Transfers,
    ready: Ready<Body>,
    executor: Executor<Inbox>,
    /// Tasks that have not started; the first may be loading.
    backlog: Backlog<Vec<Command<Body>>>,
    loading: Option<Loading>,
    building: Building,
    /// What the client has not been told yet.
    reports: Vec<Report>,
    closed: Closed,
}

/// A modelled reconfiguration.
#[derive(Debug, Clone, Copy)]
struct Loading {
    since: Instant,
    until: Instant,
}

/// Whether a build runs on a thread of its own; what comes after it waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Building {
    Yes,
    No,
}

/// Whether the session has left nothing behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Closed {
    Yes,
    No,
}

/// How a client breaks the protocol; the session ends with that.
#[derive(Debug, thiserror::Error)]
enum Violation {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Transfer(#[from] TransferError),
    #[error(transparent)]
    UsedTwice(#[from] UsedTwice),
    #[error("a message is empty, or this device manager does not know its kind")]
    NoKind,
    #[error("Hello is the first message, and only that")]
    Hello,
    #[error("an event id is 0")]
    ZeroEvent,
    #[error("a Flush has {0} commands; at most {MAX_FLUSH} are taken")]
    Flush(usize),
    #[error("the session has {MAX_EVENTS} events; release some")]
    Events,
    #[error("{MAX_DEFERRED} commands wait for user events; set some")]
    Deferred,
    #[error("the session makes the manager hold {0} bytes; at most {HARD_LIMIT} are held")]
    Bytes(u64),
}

impl Session {
    /// A session for `tenant`, and where its input arrives.
    pub fn new(
        shared: Arc<Shared>,
        tenant: Tenant,
        budget: Budget,
        outgoing: Outgoing,
    ) -> (Self, UnboundedReceiver<Input>) {
        let (sender, input) = unbounded_channel();
        let inbox = Inbox(sender);
        let id = shared.config.dispatcher.new_session();
        let session = Self {
            shared,
            id,
            tenant,
            executor: Executor::new(inbox.clone()),
            inbox,
            outgoing,
            budget,
            objects: Objects::default(),
            transfers: Transfers::default(),
            ready: Ready::default(),
            backlog: Backlog::default(),
            loading: None,
            building: Building::No,
            reports: Vec::new(),
            closed: Closed::No,
        };
        (session, input)
    }

    /// Serves the client until it or the manager ends, then cleans up.
    pub async fn run(mut self, mut input: UnboundedReceiver<Input>, mut client: impl Incoming) {
        let last = match self.hello(&mut client).await {
            Ok(()) => {
                self.shared.router.add(self.id, self.inbox.clone());
                self.serve(&mut input, &mut client).await
            }
            Err(status) => Some(status),
        };
        drop(client);
        self.close(&mut input).await;
        if let Some(status) = last {
            if !matches!(status.code(), Code::Cancelled | Code::Unknown | Code::Unavailable) {
                tracing::info!(
                    session = self.id.0,
                    tenant = self.tenant.as_str(),
                    reason = status.message(),
                    "Session refused"
                );
            }
            self.outgoing.end(status);
        }
    }

    async fn hello(&mut self, client: &mut impl Incoming) -> Result<(), Status> {
        let first = tokio::time::timeout(HELLO_TIMEOUT, client.next());
        let first = first.await.map_err(|_| Status::deadline_exceeded("no Hello came"))??;
        let Some(Kind::Hello(hello)) = first.and_then(|message| message.kind) else {
            return Err(Violation::Hello.status());
        };
        let theirs = hello.protocol_version;
        if theirs != PROTOCOL_VERSION {
            return Err(Status::failed_precondition(format!(
                "the client speaks version {theirs} of the protocol and this device manager {PROTOCOL_VERSION}: \
                 install matching versions"
            )));
        }
        let client: String = hello.client_name.chars().filter(|c| !c.is_control()).take(64).collect();
        tracing::debug!(
            session = self.id.0,
            tenant = self.tenant.as_str(),
            client,
            pid = hello.pid,
            "Session opened"
        );
        self.outgoing.welcome(v1::Welcome {
            session: self.id.0.to_string(),
            platforms: self.shared.inventory.platforms().to_vec(),
            manager_ns: clock::now_ns(),
        });
        Ok(())
    }

    /// Until the end; the status with which the stream ends, unless the client ended it well.
    async fn serve(
        &mut self,
        input: &mut UnboundedReceiver<Input>,
        client: &mut impl Incoming,
    ) -> Option<Status> {
        let shutdown = self.shared.shutdown.clone();
        let requested = shutdown.requested();
        tokio::pin!(requested);
        loop {
            let listening = self.building == Building::No;
            let full = self.is_full();
            let loading = self.loading.map(|loading| loading.until);
            tokio::select! {
                biased;
                Some(first) = input.recv() => {
                    self.take(first);
                    for _ in 0..MAX_ROUND {
                        match input.try_recv() {
                            Ok(more) => self.take(more),
                            Err(_) => break,
                        }
                    }
                }
                () = sleep_until(loading.unwrap_or_else(Instant::now)), if loading.is_some() => self.loaded(),
                message = client.next(), if listening && !full => match message {
                    Ok(None) => return None,
                    Ok(Some(message)) => {
                        if let Err(violation) = self.message(message) {
                            return Some(violation.status());
                        }
                    }
                    Err(status) => return Some(status),
                },
                () = self.outgoing.closed() => return None,
                () = self.budget.freed(), if full => {}
                () = &mut requested => return Some(Status::unavailable(LAST_STATUS)),
            }
            self.outgoing.reports(&mut self.reports);
        }
    }

    /// Whether the client has to wait before it is read again. Never where it is the client's turn: commands that wait
    /// for a user event need its message.
    fn is_full(&self) -> bool {
        self.budget.held() > SOFT_LIMIT && self.ready.deferred() == 0
    }

    fn message(&mut self, message: v1::ClientMessage) -> Result<(), Violation> {
        match message.kind.ok_or(Violation::NoKind)? {
            Kind::Hello(_) => Err(Violation::Hello),
            Kind::Chunk(chunk) => {
                self.transfers.chunk(chunk)?;
                let held = self.transfers.bytes() + self.budget.held();
                if held > HARD_LIMIT { Err(Violation::Bytes(held)) } else { Ok(()) }
            }
            Kind::Flush(flush) => self.flush(flush),
            Kind::Call(call) => self.call(call),
        }
    }

    fn call(&mut self, call: v1::Call) -> Result<(), Violation> {
        let id = call.id;
        match call.method.ok_or(CallError::NoMethod)? {
            Method::CreateUserEvent(create) => {
                let context = self.objects.context(create.context);
                self.new_event(create.event)?;
                self.ready.create_user_event(EventId(create.event))?;
                self.answer(reply(id, context.map(|_| ()), None));
            }
            Method::SetUserEvent(set) => {
                let step = self.ready.set_user_event(EventId(set.event), set.status);
                let status = match step {
                    Ok(step) => {
                        self.go(step);
                        Ok(())
                    }
                    Err(code) => Err(ClError(code)),
                };
                self.answer(reply(id, status, None));
            }
            Method::Release(release) => {
                for object in release.objects {
                    self.objects.release(object);
                }
                for event in release.events {
                    self.ready.forget(EventId(event));
                }
                self.answer(reply(id, Ok(()), None));
            }
            method => {
                let mut calls = Calls {
                    config: &self.shared.config,
                    inventory: &self.shared.inventory,
                    objects: &mut self.objects,
                    transfers: &mut self.transfers,
                    outgoing: &mut self.outgoing,
                };
                match calls.run(id, method)? {
                    Outcome::Done(reply) => self.answer(reply),
                    Outcome::Build(build) => {
                        let inbox = self.inbox.clone();
                        let thread = std::thread::Builder::new().name("build".to_owned());
                        let started = thread.spawn(move || {
                            // The session waits for it, so the inbox is open.
                            let _ = inbox.0.send(Input::Built(Box::new(build.run())));
                        });
                        match started {
                            Ok(_) => self.building = Building::Yes,
                            Err(_) => {
                                self.answer(reply(id, Err(ClError(opencl_sys::CL_OUT_OF_HOST_MEMORY)), None));
                            }
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn answer(&self, reply: v1::Reply) {
        if reply.id != 0 {
            self.outgoing.reply(reply);
        }
    }

    fn new_event(&self, event: u64) -> Result<(), Violation> {
        if event == 0 {
            Err(Violation::ZeroEvent)
        } else if self.ready.events() >= MAX_EVENTS {
            Err(Violation::Events)
        } else {
            Ok(())
        }
    }

    fn flush(&mut self, flush: v1::Flush) -> Result<(), Violation> {
        let count = flush.commands.len();
        if count > MAX_FLUSH {
            return Err(Violation::Flush(count));
        }
        let mut items = Vec::with_capacity(count);
        for command in flush.commands {
            self.new_event(command.event)?;
            items.push(commands::item(command, &self.objects, &mut self.transfers, &self.budget)?);
        }
        let received: u64 = items.iter().map(|item| item.body.as_ref().map_or(0, Body::received)).sum();
        if received > 0 {
            self.shared.config.metrics.count_bytes(Direction::Received, received);
        }
        let step = self.ready.flush(items)?;
        if self.ready.deferred() > MAX_DEFERRED {
            return Err(Violation::Deferred);
        }
        let held = self.transfers.bytes() + self.budget.held();
        if held > HARD_LIMIT {
            return Err(Violation::Bytes(held));
        }
        self.go(step);
        Ok(())
    }

    /// Submits what can run and notes what has failed.
    fn go(&mut self, step: Step<Body>) {
        let Step { ready, failed } = step;
        let failed = failed.into_iter().map(|(event, status)| Report::Ended(Ended::at_once(event, status)));
        self.reports.extend(failed);
        if ready.is_empty() {
            return;
        }
        let dispatcher = self.shared.config.dispatcher.clone();
        for task::Task { commands, demand } in task::split(ready, dispatcher.slots(), |body| body.need) {
            let task = dispatcher.new_task();
            let request = TaskRequest { session: self.id, task, tenant: self.tenant.clone(), demand };
            match dispatcher.submit(request) {
                Ok(grant) => {
                    self.backlog.push(task, commands);
                    if let Some(grant) = grant {
                        self.grant(grant);
                    }
                }
                Err(refusal) => {
                    tracing::error!(task = task.0, %refusal, "A task was refused");
                    for Command { event, .. } in commands {
                        let status = opencl_sys::CL_OUT_OF_RESOURCES;
                        self.ready.ended(event, status);
                        self.reports.push(Report::Ended(Ended::at_once(event, status)));
                    }
                }
            }
        }
    }

    fn grant(&mut self, grant: Grant) {
        if let Err(unknown) = self.backlog.grant(grant) {
            tracing::error!(task = unknown.task.0, "A task was granted that is not waiting");
            self.give_back(vec![unknown]);
        }
        self.start_granted();
    }

    /// Starts what has its slots, in the order of the grants; stops where one has to load.
    fn start_granted(&mut self) {
        while self.loading.is_none()
            && let Some(grant) = self.backlog.first()
        {
            let time = self.shared.config.reconfiguration_time;
            let loads = u32::try_from(grant.load.len()).unwrap_or(u32::MAX);
            if loads > 0 {
                // One after the other: a board has one configuration port.
                let since = Instant::now();
                self.loading = Some(Loading { since, until: since + time.saturating_mul(loads) });
                if !time.is_zero() {
                    return;
                }
                self.report_load();
            }
            self.start_first();
        }
    }

    /// The modelled time of the first grant is over.
    fn loaded(&mut self) {
        self.report_load();
        self.start_first();
        self.start_granted();
    }

    fn report_load(&mut self) {
        let Some(Loading { since, .. }) = self.loading.take() else { return };
        let Some(grant) = self.backlog.first() else { return };
        let took =
            if self.shared.config.reconfiguration_time.is_zero() { Duration::ZERO } else { since.elapsed() };
        let loads = u32::try_from(grant.load.len()).unwrap_or(u32::MAX).max(1);
        for Load { slot, bitstream } in &grant.load {
            self.shared.config.reports.reconfigured(&Reconfigured {
                slot: *slot,
                bitstream: *bitstream,
                took: took / loads,
                tenant: self.tenant.clone(),
            });
        }
    }

    fn start_first(&mut self) {
        let Some((task, commands)) = self.backlog.pop() else { return };
        if self.executor.start(task, commands, &mut self.ready, &mut self.reports) {
            self.task_ended(task);
        }
    }

    fn task_ended(&mut self, task: TaskId) {
        let dispatcher = &self.shared.config.dispatcher;
        let grants = dispatcher.finished(task);
        let mine = self.shared.router.deliver(grants, self.id, dispatcher);
        for grant in mine {
            // Its turn comes in `start_granted`, which all callers go on with.
            if let Err(unknown) = self.backlog.grant(grant) {
                self.give_back(vec![unknown]);
            }
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Ended(event, status) => {
                let last = self.executor.finish(event, status, &mut self.ready, &mut self.reports);
                if let Some(task) = last {
                    self.task_ended(task);
                    self.start_granted();
                }
            }
            Input::PieceEnded(event) => self.executor.piece_ended(event, &mut self.reports),
            Input::Granted(grant) => self.grant(grant),
            Input::Built(reply) => {
                self.building = Building::No;
                self.answer(*reply);
            }
        }
    }

    /// Nothing of the session is left behind: not in the dispatcher, not on the device, not in memory.
    async fn close(&mut self, input: &mut UnboundedReceiver<Input>) {
        let dispatcher = self.shared.config.dispatcher.clone();
        let others = dispatcher.cancel_session(self.id);
        self.shared.router.remove(self.id);
        self.give_back(others);
        self.loading = None;
        for task in self.backlog.clear() {
            self.give_back(dispatcher.finished(task));
        }
        while !self.executor.is_idle() || self.building == Building::Yes {
            let Some(next) = input.recv().await else { break };
            self.wind_up(next);
        }
        while let Ok(next) = input.try_recv() {
            self.wind_up(next);
        }
        self.outgoing.reports(&mut self.reports);
        self.closed = Closed::Yes;
        tracing::debug!(session = self.id.0, "Session closed");
    }

    fn wind_up(&mut self, input: Input) {
        match input {
            Input::Ended(event, status) => {
                let last = self.executor.finish(event, status, &mut self.ready, &mut self.reports);
                if let Some(task) = last {
                    let grants = self.shared.config.dispatcher.finished(task);
                    self.give_back(grants);
                }
            }
            Input::PieceEnded(event) => self.executor.piece_ended(event, &mut self.reports),
            Input::Granted(grant) => {
                let grants = self.shared.config.dispatcher.finished(grant.task);
                self.give_back(grants);
            }
            Input::Built(_) => self.building = Building::No,
        }
    }

    /// After a panic, when nobody closed the session: the others get the slots that it held.
    fn abandon(&mut self) {
        let dispatcher = self.shared.config.dispatcher.clone();
        self.give_back(dispatcher.cancel_session(self.id));
        self.shared.router.remove(self.id);
        let granted = self.backlog.clear();
        for task in self.executor.tasks().chain(granted).collect::<Vec<_>>() {
            self.give_back(dispatcher.finished(task));
        }
    }

    /// Delivers grants of others; own ones, which come too late, are finished at once.
    fn give_back(&self, grants: Vec<Grant>) {
        let dispatcher = &self.shared.config.dispatcher;
        let mut left = grants;
        while !left.is_empty() {
            let mine = self.shared.router.deliver(left, self.id, dispatcher);
            left = mine.into_iter().flat_map(|grant| dispatcher.finished(grant.task)).collect();
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.closed == Closed::No {
            self.abandon();
        }
    }
}

impl Violation {
    fn status(&self) -> Status {
        let code = match self {
            Self::Events
            | Self::Deferred
            | Self::Bytes(_)
            | Self::Call(CallError::Add(AddError::TooMany)) => Code::ResourceExhausted,
            _ => Code::InvalidArgument,
        };
        Status::new(code, self.to_string())
    }
}
