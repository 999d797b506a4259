//! The manager's side of one tenant process: its sessions, its tasks, and the cleanup after its end.
//!
//! The manager trusts nothing that the process sends. When the process ends, its sessions end, and other
//! sessions get what they held of the device.

mod control_messages;
mod granted_loads;
#[cfg(test)]
mod tests;

use super::guard;
use super::outbound::Outbound;
use super::packets::{Control, FromTenant, Received, ToTenant};
use super::shared_board::{Member, SharedBoard};
use control_messages::{Held, Violation};
use fpga_board::dispatch::{Grant, TaskId, Tenant};
use fpga_board::slots::SessionId;
use fpga_board::whole_board::{MemberDeadline, MemberId, Order};
use fpga_core::bitstream::Digest;
use fpga_session::governor::TenantAccount;
use fpga_session::locality::Locality;
use fpga_session::router::Input;
use fpga_session::segments::FdChannel;
use fpga_session::session::Shared;
use granted_loads::GrantedLoads;
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitStatus;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tonic::Status;

/// Time after which a process without sessions ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval at which idleness is checked.
pub(super) const IDLE_TICK: Duration = Duration::from_secs(1);
/// Number of task ids that one process has.
pub(super) const TASK_IDS: u64 = 1 << 40;
/// An id that no session has: sessions are counted from 1.
const NO_SESSION: SessionId = SessionId(0);

/// A tenant process, as the manager sees it.
#[derive(Debug)]
pub struct TenantProcess {
    tenant: Tenant,
    /// Ids of the process's tasks are greater than this.
    first_task: u64,
    control: Outbound,
    account: TenantAccount,
    /// The board, if it is reconfigured as a whole.
    board: Option<Arc<SharedBoard>>,
    /// When the manager began to start the process.
    began: Instant,
    state: Mutex<State>,
    /// Notified when granted tasks have ended.
    tasks_ended: Notify,
}

/// A session that begins in a tenant process.
#[derive(Debug, Clone, Copy)]
pub struct Begin<'l> {
    /// Id of the session.
    pub session: SessionId,
    /// Digest of the token that the session has shown.
    pub token: Option<Digest>,
    /// Where the client is.
    pub locality: Locality,
    /// The process's end of the session's link.
    pub link: &'l OwnedFd,
}

#[derive(Debug)]
struct State {
    life: Life,
    /// The sessions, each with the digest of the token that it has shown.
    sessions: BTreeMap<SessionId, Option<Digest>>,
    tasks: HashMap<TaskId, Task>,
    /// Tasks that have been granted, with slots or without. Those of a session that has ended may still run.
    granted: HashSet<TaskId>,
    /// The bitstreams that each session may have loaded.
    allowed: HashSet<(SessionId, Digest)>,
    /// Number of questions about bitstreams that have no answer yet.
    questions: usize,
    /// Lasting bytes and places for builds, by the number of the question that asked for them.
    held: HashMap<u64, Held>,
    /// Number of builds that have a place or wait for one.
    builds: usize,
    loads: GrantedLoads,
    /// How long a board that is reconfigured as a whole waits for the process.
    deadline: MemberDeadline,
    /// Start of the time without any session.
    idle_since: Instant,
}

/// A task that has not ended.
#[derive(Debug)]
struct Task {
    session: SessionId,
    /// The bitstreams that the task needs.
    bitstreams: Vec<Digest>,
    load: TaskLoad,
}

/// Whether a task loads a bitstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskLoad {
    /// No load is known.
    None,
    /// The grant includes a load.
    Granted,
    /// The process reports that the load failed.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Lives,
    Over,
    /// Over, because commands do not end.
    Stuck,
    /// Over, because the process used most memory of all.
    TooLarge,
    /// Over, because the process did not leave a board that was to be reconfigured as a whole.
    Stays,
    /// Over, because the process did not end its load of such a board.
    Loads,
}

/// How a process ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// The process was idle, or the manager ends.
    Retired,
    /// The process ended by itself or by a fault of its tenant's kernels.
    Died,
    /// Commands of the tenant do not end, and their client has gone.
    Stuck,
    /// The process used most of the memory that all may use together.
    TooLarge,
    /// The process broke the protocol.
    Broke(Violation),
}

impl TenantProcess {
    /// The state of a process that is yet to be started. `control` is the manager's end of its control
    /// socket; `account` is charged for lasting bytes; `board` is one that is reconfigured as a whole.
    pub(super) fn new(
        tenant: Tenant,
        first_task: u64,
        control: Control,
        account: TenantAccount,
        board: Option<Arc<SharedBoard>>,
    ) -> Self {
        let began = Instant::now();
        let state = State {
            life: Life::Lives,
            sessions: BTreeMap::new(),
            tasks: HashMap::new(),
            granted: HashSet::new(),
            allowed: HashSet::new(),
            questions: 0,
            held: HashMap::new(),
            builds: 0,
            loads: GrantedLoads::default(),
            deadline: MemberDeadline::default(),
            idle_since: began,
        };
        let (control, state, tasks_ended) = (Outbound::new(control), Mutex::new(state), Notify::new());
        Self { tenant, first_task, control, account, board, began, state, tasks_ended }
    }

    /// The process as a user of a board that is reconfigured as a whole.
    pub(super) fn member(&self) -> MemberId {
        MemberId(self.first_task)
    }

    /// The time since [`Self::began`].
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// The tenant of the process.
    pub(super) fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Begins a session; returns false if the process is over.
    pub(super) fn begin(&self, begin: &Begin<'_>) -> io::Result<bool> {
        let &Begin { session, token, locality, link } = begin;
        let mut state = self.state.lock();
        if state.life != Life::Lives {
            return Ok(false);
        }
        let shares_memory_with = match locality {
            Locality::SharesMemory(process) => Some(process),
            Locality::Remote => None,
        };
        let open = ToTenant::Open { session: session.0, shares_memory_with };
        self.control.send(&open, Some(link.as_fd()))?;
        state.sessions.insert(session, token);
        Ok(true)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state.lock().sessions.is_empty()
    }

    /// Whether the process has had no session for long; it then gets no more sessions.
    pub(super) fn retires_if_idle(&self) -> bool {
        let mut state = self.state.lock();
        let idle = state.sessions.is_empty() && state.idle_since.elapsed() >= IDLE_TIMEOUT;
        if idle {
            state.life = Life::Over;
        }
        idle
    }

    /// Gives the process no more sessions and closes its control socket; the thread of the process does the
    /// rest.
    pub(super) fn retire(&self) {
        let mut state = self.state.lock();
        if state.life == Life::Lives {
            state.life = Life::Over;
        }
        drop(state);
        self.control.hang_up();
    }

    /// Whether any task of the session runs.
    pub(super) fn runs_tasks_of(&self, session: SessionId) -> bool {
        let state = self.state.lock();
        state.granted.iter().any(|task| state.tasks.get(task).is_some_and(|task| task.session == session))
    }

    /// Waits until no task of the session runs: the process says so, or has ended.
    pub(super) async fn settled(&self, session: SessionId) {
        loop {
            let ended = self.tasks_ended.notified();
            tokio::pin!(ended);
            ended.as_mut().enable();
            if !self.runs_tasks_of(session) {
                return;
            }
            ended.await;
        }
    }

    /// Ends the process because commands of a session whose client has gone do not end. Nothing else can end
    /// them.
    pub(super) fn is_stuck(&self) {
        self.state.lock().life = Life::Stuck;
        self.control.hang_up();
    }

    /// Ends the process because all processes together have reached their memory limit and this one uses
    /// most.
    pub(super) fn is_too_large(&self) {
        self.state.lock().life = Life::TooLarge;
        self.control.hang_up();
    }

    /// The status for the process's clients, if the manager ended the process for something that they should know.
    pub(super) fn why_it_was_ended(&self) -> Option<Status> {
        match self.state.lock().life {
            Life::TooLarge => Some(Status::resource_exhausted(
                "the device manager has no memory left, and this tenant's process had most of it: the process was ended; \
                 a new session gets a new one",
            )),
            Life::Stays => Some(Status::aborted(
                "another task needed the board, which is reconfigured as a whole, and this tenant's process did not leave \
                 it in time: the process was ended; a new session gets a new one",
            )),
            Life::Loads => Some(Status::aborted(
                "this tenant's process loaded the board, which is reconfigured as a whole, and did not end the load in \
                 time: the process was ended; a new session gets a new one",
            )),
            Life::Lives | Life::Over | Life::Stuck => None,
        }
    }

    /// Sends a packet to the process.
    ///
    /// # Errors
    /// The process does not read its packets.
    pub(super) fn say(&self, packet: &ToTenant) -> io::Result<()> {
        self.control.send(packet, None)
    }

    /// Sends a packet to the process, and retires the process if it does not read its packets.
    pub fn tell(&self, packet: &ToTenant) {
        if self.say(packet).is_err() {
            self.retire();
        }
    }

    /// Lets a task start.
    pub fn grant(&self, grant: &Grant) {
        {
            let mut state = self.state.lock();
            // A session that has ended has given its grant back.
            let Some(task) = state.tasks.get_mut(&grant.task) else { return };
            if !grant.load.is_empty() {
                task.load = TaskLoad::Granted;
            }
            state.granted.insert(grant.task);
        }
        match &self.board {
            Some(board) => board.granted(self.member(), grant.clone()),
            None => self.start(grant),
        }
    }

    fn start(&self, grant: &Grant) {
        {
            let mut state = self.state.lock();
            // A hostile process may have said that the task has ended.
            if state.granted.contains(&grant.task) {
                state.loads.started(grant, self.now());
            }
        }
        self.tell(&ToTenant::Granted(grant.into()));
    }

    /// Passes a client's connection to the side socket on to the process.
    pub fn side(&self, session: SessionId, side: &FdChannel) {
        if self.control.send(&ToTenant::FdChannel { session: session.0 }, Some(side.as_fd())).is_err() {
            self.retire();
        }
    }

    /// Cleans up after a session that has ended in any way: drops its tasks that wait. Running tasks
    /// hold their slots until the process says that they have ended, or [`Self::leave_nothing`].
    pub fn close(&self, session: SessionId, shared: &Shared) {
        let waiting: Vec<TaskId> = {
            let mut state = self.state.lock();
            if state.sessions.remove(&session).is_none() {
                return;
            }
            if state.sessions.is_empty() {
                state.idle_since = Instant::now();
            }
            state.allowed.retain(|(of, _)| *of != session);
            let State { tasks, granted, .. } = &mut *state;
            let waits = |task: &TaskId, of: &mut Task| of.session == session && !granted.contains(task);
            tasks.extract_if(waits).map(|(task, _)| task).collect()
        };
        let dispatcher = &shared.config.dispatcher;
        shared.router.deliver(dispatcher.cancel_session(session), NO_SESSION, dispatcher);
        // One may have got its slot, and the process has not heard of it.
        for task in waiting {
            shared.router.deliver(dispatcher.finished(task), NO_SESSION, dispatcher);
        }
    }

    /// Cleans up after the process, which must have ended: only then nothing runs in the slots of its tasks. The
    /// content of those slots is unknown.
    pub(super) fn leave_nothing(&self, shared: &Shared) {
        let (sessions, held) = {
            let mut state = self.state.lock();
            if !matches!(state.life, Life::TooLarge | Life::Stays | Life::Loads) {
                state.life = Life::Over;
            }
            // Dropped after the lock is released, since dropping notifies waiters.
            (state.sessions.keys().copied().collect::<Vec<_>>(), std::mem::take(&mut state.held))
        };
        drop(held);
        for session in sessions {
            self.close(session, shared);
        }
        let ran = std::mem::take(&mut self.state.lock().granted);
        let dispatcher = &shared.config.dispatcher;
        for task in ran {
            dispatcher.load_failed(task);
            shared.router.deliver(dispatcher.finished(task), NO_SESSION, dispatcher);
        }
        self.tasks_ended.notify_waiters();
    }

    /// Handles the packets of the process `pid` until it ends, breaks the protocol, or `retires` for its idleness.
    pub(super) fn serve(self: &Arc<Self>, pid: u32, retires: impl Fn() -> bool, shared: &Shared) -> Ending {
        let mut confined = false;
        loop {
            let received = if confined {
                self.control.receive::<FromTenant>()
            } else {
                self.control.receive_with_descriptor::<FromTenant>()
            };
            let result = match received {
                // No code of the tenant runs in the process before this packet.
                Ok(Received::Packet(FromTenant::Confined, listener)) if !confined => {
                    confined = true;
                    listener.map_or(Ok(()), |listener| guard::start(pid, listener)).map_err(Violation::from)
                }
                Ok(Received::Packet(_, _)) if !confined => Err(Violation::First),
                Ok(Received::Packet(packet, _)) => {
                    self.handle(packet, shared).and_then(|()| self.makes_room(shared))
                }
                Ok(Received::Nothing) => {
                    if retires() {
                        return Ending::Retired;
                    }
                    self.makes_room(shared)
                }
                Ok(Received::End) => {
                    return match self.state.lock().life {
                        Life::Lives => Ending::Died,
                        Life::Over | Life::Stays | Life::Loads => Ending::Retired,
                        Life::Stuck => Ending::Stuck,
                        Life::TooLarge => Ending::TooLarge,
                    };
                }
                Err(error) => Err(error.into()),
            };
            if let Err(violation) = result {
                return Ending::Broke(violation);
            }
        }
    }

    /// Logs why the process has ended.
    pub(super) fn say_end(&self, ending: &Ending, status: io::Result<ExitStatus>, shared: &Shared) {
        let tenant = self.tenant.as_str();
        let status = status.map(|status| status.to_string()).unwrap_or_default();
        match ending {
            Ending::Retired => {
                tracing::info!(tenant, "A tenant's process has ended");
                return;
            }
            Ending::Stuck => {
                tracing::warn!(
                    tenant,
                    "A tenant's process was ended: commands of a client that has gone ran on"
                );
            }
            Ending::TooLarge => {
                tracing::warn!(tenant, "A tenant's process was ended: no memory is left, and it had most");
            }
            Ending::Died => tracing::warn!(tenant, status, "A tenant's process died; its sessions are over"),
            Ending::Broke(why) => tracing::error!(tenant, %why, "A tenant's process broke the rules"),
        }
        shared.config.metrics.tenant_processes_died.inc();
    }
}

impl Member for TenantProcess {
    fn orders(&self, order: Order) {
        self.state.lock().deadline.ordered(&order, self.now());
        match order {
            Order::Leave(round) => self.tell(&ToTenant::Leave { round }),
            Order::Return(images) => self.tell(&ToTenant::Return { images }),
            Order::Start(grant) => self.start(&grant),
        }
    }
}

/// Passes an [`Input`] of a relay or a side socket on to the process.
pub fn pass_on(process: &TenantProcess, session: SessionId, input: Input) {
    match input {
        Input::Granted(grant) => process.grant(&grant),
        Input::FdChannel(side) => process.side(session, &side),
        Input::Yield => process.tell(&ToTenant::Yield { session: session.0 }),
        // The manager runs no commands of such a session.
        _ => {}
    }
}
