//! The manager's side of one tenant process: its sessions, its tasks, and what is left of them when it has ended.
//!
//! It is believed in nothing. When it ends its sessions are over and what they held of the device is others'.

mod heard;

use super::guard;
use super::outbound::Outbound;
use super::packets::{Control, Down, Received, Up};
use super::pool::TenantProcesses;
use crate::dispatcher::{Grant, SessionId, TaskId, Tenant};
use crate::governor::TenantAccount;
use crate::objects::lock;
use crate::router::Input;
use crate::segments::Side;
use crate::session::{Locality, Shared};
use fpga_core::bitstream::Digest;
use heard::{Held, Violation};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tonic::Status;

/// A process without sessions ends after this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often that is looked at.
pub(super) const IDLE_TICK: Duration = Duration::from_secs(1);
/// Ids of tasks of one process.
pub(super) const TASK_IDS: u64 = 1 << 40;
/// Sessions are counted from 1.
const NO_SESSION: SessionId = SessionId(0);

/// A tenant's process, as the manager sees it.
#[derive(Debug)]
pub struct TenantProcess {
    tenant: Tenant,
    /// Ids of its tasks come after this.
    first_task: u64,
    control: Outbound,
    account: TenantAccount,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    life: Life,
    sessions: BTreeSet<SessionId>,
    tasks: HashMap<TaskId, Task>,
    /// Those of them that have slots, or run without.
    granted: HashSet<TaskId>,
    /// Which bitstreams the sessions may have the device reconfigured to.
    allowed: HashSet<(SessionId, Digest)>,
    /// Questions about that which have no answer yet.
    questions: usize,
    /// Lasting bytes and places for builds, by the questions that they were asked for by.
    held: HashMap<u64, Held>,
    /// Builds that have a place or wait for one.
    builds: usize,
    /// Loads that were granted and not told of yet.
    loads: usize,
    /// Since when there is no session.
    idle_since: Instant,
}

/// A task that has not ended.
#[derive(Debug)]
struct Task {
    session: SessionId,
    /// What it needs on the board.
    bitstreams: Vec<Digest>,
    load: TaskLoad,
}

/// Whether a task loads the board.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TaskLoad {
    /// Not as far as is known.
    None,
    /// It was granted so.
    Granted,
    /// Its process says that it could not.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Lives,
    Over,
    /// Over, for commands that don't end.
    Stuck,
    /// Over, for memory: the process had most of all.
    TooLarge,
}

/// How a process ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// It had nothing to do, or the manager ends.
    Retired,
    /// By itself, or by its tenant's kernels.
    Died,
    /// Its tenant's commands don't end, and their client has gone.
    Stuck,
    /// It had most of the memory that all may use together.
    TooLarge,
    /// It broke the rules.
    Broke(Violation),
}

impl TenantProcess {
    /// One that is to be started, with the manager's end of its control socket, and the account of what lasts.
    pub(super) fn new(tenant: Tenant, first_task: u64, control: Control, account: TenantAccount) -> Self {
        let state = State {
            life: Life::Lives,
            sessions: BTreeSet::new(),
            tasks: HashMap::new(),
            granted: HashSet::new(),
            allowed: HashSet::new(),
            questions: 0,
            held: HashMap::new(),
            builds: 0,
            loads: 0,
            idle_since: Instant::now(),
        };
        Self { tenant, first_task, control: Outbound::new(control), account, state: Mutex::new(state) }
    }

    /// Whose it is.
    pub(super) fn tenant(&self) -> &Tenant {
        &self.tenant
    }

    /// Begins a session, unless the process is over.
    pub(super) fn begin(&self, session: SessionId, locality: Locality, link: &OwnedFd) -> io::Result<bool> {
        let mut state = lock(&self.state);
        if state.life != Life::Lives {
            return Ok(false);
        }
        let shares_memory_with = match locality {
            Locality::SharesMemory(process) => Some(process),
            Locality::Remote => None,
        };
        let open = Down::Open { session: session.0, shares_memory_with };
        self.control.send(&open, Some(link.as_fd()))?;
        state.sessions.insert(session);
        Ok(true)
    }

    pub(super) fn is_idle(&self) -> bool {
        lock(&self.state).sessions.is_empty()
    }

    /// Whether it has had no session for long; then it gets none any more.
    pub(super) fn retires_if_idle(&self) -> bool {
        let mut state = lock(&self.state);
        let idle = state.sessions.is_empty() && state.idle_since.elapsed() >= IDLE_TIMEOUT;
        if idle {
            state.life = Life::Over;
        }
        idle
    }

    /// It gets no more sessions, and is told so; its thread does the rest.
    pub(super) fn retire(&self) {
        let mut state = lock(&self.state);
        if state.life == Life::Lives {
            state.life = Life::Over;
        }
        drop(state);
        self.control.hang_up();
    }

    /// Whether tasks of the session run.
    pub(super) fn runs_tasks_of(&self, session: SessionId) -> bool {
        let state = lock(&self.state);
        state.granted.iter().any(|task| state.tasks.get(task).is_some_and(|task| task.session == session))
    }

    /// Commands of a session whose client has gone don't end: nothing but the end of the process ends them.
    pub(super) fn is_stuck(&self) {
        lock(&self.state).life = Life::Stuck;
        self.control.hang_up();
    }

    /// All processes together use what they may, and this one has most.
    pub(super) fn is_too_large(&self) {
        lock(&self.state).life = Life::TooLarge;
        self.control.hang_up();
    }

    /// What its clients are told, where it was ended for another reason than its own end.
    pub(super) fn why_it_was_ended(&self) -> Option<Status> {
        (lock(&self.state).life == Life::TooLarge).then(|| {
            Status::resource_exhausted(
                "the device manager has no memory left, and this tenant's process had most of it: the process was ended; \
                 a new session gets a new one",
            )
        })
    }

    /// Says something.
    ///
    /// # Errors
    /// That the process doesn't listen.
    pub(super) fn say(&self, packet: &Down) -> io::Result<()> {
        self.control.send(packet, None)
    }

    /// Says something; a process that doesn't listen ends.
    pub(super) fn tell(&self, packet: &Down) {
        if self.say(packet).is_err() {
            self.retire();
        }
    }

    /// A task of the session may start.
    pub fn grant(&self, grant: &Grant) {
        {
            let mut state = lock(&self.state);
            state.loads += grant.load.len();
            if let Some(task) = state.tasks.get_mut(&grant.task) {
                if !grant.load.is_empty() {
                    task.load = TaskLoad::Granted;
                }
                state.granted.insert(grant.task);
            }
        }
        self.tell(&Down::Granted(grant.into()));
    }

    /// The session's client has connected for descriptors.
    pub fn side(&self, session: SessionId, side: &Side) {
        if self.control.send(&Down::Side { session: session.0 }, Some(side.as_fd())).is_err() {
            self.retire();
        }
    }

    /// The session has ended, in whatever way: what it held of the device is others'.
    pub fn close(&self, session: SessionId, shared: &Shared) {
        let tasks: Vec<TaskId> = {
            let mut state = lock(&self.state);
            if !state.sessions.remove(&session) {
                return;
            }
            if state.sessions.is_empty() {
                state.idle_since = Instant::now();
            }
            state.allowed.retain(|(of, _)| *of != session);
            let of_session: Vec<_> =
                state.tasks.iter().filter(|(_, of)| of.session == session).map(|(task, _)| *task).collect();
            for task in &of_session {
                state.tasks.remove(task);
                state.granted.remove(task);
            }
            of_session
        };
        let dispatcher = &shared.config.dispatcher;
        shared.router.deliver(dispatcher.cancel_session(session), NO_SESSION, dispatcher);
        for task in tasks {
            shared.router.deliver(dispatcher.finished(task), NO_SESSION, dispatcher);
        }
    }

    pub(super) fn leave_nothing(&self, shared: &Shared) {
        let (sessions, held) = {
            let mut state = lock(&self.state);
            if state.life != Life::TooLarge {
                state.life = Life::Over;
            }
            // With the lock given back: others wait for what is dropped.
            (state.sessions.clone(), std::mem::take(&mut state.held))
        };
        drop(held);
        for session in sessions {
            self.close(session, shared);
        }
    }

    /// Hears the process `pid` until it ends, breaks the rules, or has nothing to do.
    pub(super) fn serve(self: &Arc<Self>, pid: u32, all: &TenantProcesses, shared: &Shared) -> Ending {
        let mut confined = false;
        loop {
            let received = if confined {
                self.control.receive::<Up>()
            } else {
                self.control.receive_with_descriptor::<Up>()
            };
            let result = match received {
                // Before this nothing of the tenant's runs in the process.
                Ok(Received::Packet(Up::Confined, listener)) if !confined => {
                    confined = true;
                    listener.map_or(Ok(()), |listener| guard::start(pid, listener)).map_err(Violation::from)
                }
                Ok(Received::Packet(_, _)) if !confined => Err(Violation::First),
                Ok(Received::Packet(packet, _)) => {
                    self.heard(packet, shared).and_then(|()| self.builds_make_room(shared))
                }
                Ok(Received::Nothing) => {
                    if all.retires(self) {
                        return Ending::Retired;
                    }
                    self.builds_make_room(shared)
                }
                Ok(Received::End) => {
                    return match lock(&self.state).life {
                        Life::Lives => Ending::Died,
                        Life::Over => Ending::Retired,
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

    /// Tells why it has ended, if somebody should know.
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

/// What relays and sides get as [`Input`] that is the process's.
pub fn pass_on(process: &TenantProcess, session: SessionId, input: Input) {
    match input {
        Input::Granted(grant) => process.grant(&grant),
        Input::Side(side) => process.side(session, &side),
        // The manager runs no command of such a session.
        _ => {}
    }
}
