//! The manager's side of tenant processes: one per tenant with sessions, supervised, bounded in number, believed in
//! nothing.
//!
//! A thread for each process starts it, hears it, and waits for its end; so it lives as long as the process, which the
//! kernel ends with that thread (`PR_SET_PDEATHSIG`). When a process ends its sessions are over and what they held of
//! the device is others'.

use super::packets::{Confine, Control, Down, Received, Room, Setup, Up, kind};
use super::process;
use crate::command_ring::CommandRing;
use crate::config::Config;
use crate::dispatcher::{Demand, Grant, SessionId, SlotIndex, TaskId, TaskRequest, Tenant};
use crate::gate::{Answer, Question, Verdict};
use crate::log::LogArgs;
use crate::metrics::Metrics;
use crate::objects::lock;
use crate::reporting::Reconfigured;
use crate::router::Input;
use crate::runtime::Runtime;
use crate::segments::Side;
use crate::session::{Locality, Shared};
use fpga_core::bitstream::Digest;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// A process without sessions ends after this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How often that is looked at.
const TICK: Duration = Duration::from_secs(1);
/// Most tasks of a process that have not ended: far more than its own quota lets it have.
const MAX_TASKS: usize = 1 << 17;
/// Most questions of a process to the gate without an answer, and bitstreams that its sessions may have.
const MAX_QUESTIONS: usize = 1 << 12;
const MAX_ALLOWED: usize = 1 << 16;
/// The longest reconfiguration that is believed.
const MAX_RECONFIGURATION: Duration = Duration::from_secs(600);
/// Ids of tasks of one process.
const TASK_IDS: u64 = 1 << 40;
/// Sessions are counted from 1.
const NO_SESSION: SessionId = SessionId(0);
/// How long processes may take to go when the manager ends.
const END_TIMEOUT: Duration = Duration::from_secs(2);

/// How tenant processes are.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Their vendor.
    pub runtime: Runtime,
    /// Their log.
    pub log: LogArgs,
    /// Most of them at a time.
    pub most: usize,
    /// Most bytes of address space of each.
    pub memory_limit: Option<u64>,
    /// Where each gets a folder.
    pub folder: PathBuf,
    /// Slots of the device.
    pub slots: NonZeroU32,
    /// In the model.
    pub reconfiguration_time: Duration,
    /// Whether programs from source count as bitstreams.
    pub source_as_bitstream: bool,
    /// Folder of accelerators.
    pub bitstreams: Option<PathBuf>,
    /// Most bytes of bitstreams that each keeps.
    pub store_limit: u64,
    /// Whether they give up the manager's files.
    pub confine: Confine,
    /// Whether they offer command rings.
    pub command_ring: CommandRing,
}

/// The tenant processes of a manager.
#[derive(Debug)]
pub struct TenantProcesses {
    plan: Plan,
    by_tenant: Mutex<BTreeMap<Tenant, Arc<TenantProcess>>>,
    /// Counts them.
    last: AtomicU64,
}

/// One of them.
#[derive(Debug)]
pub struct TenantProcess {
    tenant: Tenant,
    /// Ids of its tasks come after this.
    first_task: u64,
    control: Control,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    life: Life,
    sessions: BTreeSet<SessionId>,
    tasks: HashMap<TaskId, SessionId>,
    /// Which bitstreams the sessions may have the device reconfigured to.
    allowed: HashSet<(SessionId, Digest)>,
    /// Questions about that which have no answer yet.
    questions: usize,
    /// Loads that were granted and not told of yet.
    loads: usize,
    /// Since when there is no session.
    idle_since: Instant,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Lives,
    Over,
}

/// How a process ended.
#[derive(Debug)]
enum Ending {
    /// It had nothing to do, or the manager ends.
    Retired,
    /// By itself, or by its tenant's kernels.
    Died,
    /// It broke the rules.
    Broke(Violation),
}

/// Why a session gets no process.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There are as many as there may be, and all have sessions.
    #[error("{0} tenants use the device, each in a process of its own; no more can at a time")]
    TooMany(usize),
    /// The system refuses.
    #[error("the tenant's process can't be started: {0}")]
    System(#[from] io::Error),
}

/// How a process breaks the rules; it ends with that.
#[derive(Debug, thiserror::Error)]
enum Violation {
    #[error("it uses an id of a task that it has not")]
    Task,
    #[error("it has too many tasks")]
    Tasks,
    #[error("it asks too much")]
    Questions,
    #[error("it wants a bitstream that its session may not have")]
    Bitstream,
    #[error("a task was refused: {0}")]
    Refused(#[from] crate::dispatcher::Refusal),
    #[error("it does not listen: {0}")]
    Deaf(#[from] io::Error),
}

impl TenantProcesses {
    /// None yet.
    #[must_use]
    pub fn new(plan: Plan) -> Self {
        Self { plan, by_tenant: Mutex::default(), last: AtomicU64::new(0) }
    }

    /// Begins a session in its tenant's process, which is started if there is none.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        tenant: &Tenant,
        session: SessionId,
        locality: Locality,
        link: &OwnedFd,
    ) -> Result<Arc<TenantProcess>, OpenError> {
        let mut by_tenant = lock(&self.by_tenant);
        if let Some(known) = by_tenant.get(tenant) {
            if known.begin(session, locality, link)? {
                return Ok(known.clone());
            }
            by_tenant.remove(tenant);
        }
        if by_tenant.len() >= self.plan.most {
            let idle = by_tenant.values().find(|process| process.is_idle()).cloned();
            let Some(idle) = idle else { return Err(OpenError::TooMany(self.plan.most)) };
            idle.retire();
            by_tenant.remove(&idle.tenant);
        }
        let process = self.start(shared, tenant)?;
        process.begin(session, locality, link)?;
        by_tenant.insert(tenant.clone(), process.clone());
        drop(by_tenant);
        if shared.shutdown.is_requested() {
            process.control.send(&Down::Drain, None, Room::Now)?;
        }
        Ok(process)
    }

    fn start(self: &Arc<Self>, shared: &Arc<Shared>, tenant: &Tenant) -> io::Result<Arc<TenantProcess>> {
        let number = self.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (control, theirs) = Control::pair()?;
        control.set_timeout(TICK)?;
        let folder = self.plan.folder.join(number.to_string());
        std::fs::create_dir(&folder)?;
        let process = Arc::new(TenantProcess {
            tenant: tenant.clone(),
            first_task: number.wrapping_mul(TASK_IDS),
            control,
            state: Mutex::new(State {
                life: Life::Lives,
                sessions: BTreeSet::new(),
                tasks: HashMap::new(),
                allowed: HashSet::new(),
                questions: 0,
                loads: 0,
                idle_since: Instant::now(),
            }),
        });
        let setup = Setup {
            tenant: tenant.as_str().to_owned(),
            device: shared.config.reports.device().to_owned(),
            quota: shared.config.settings.current().quota(tenant),
            slots: self.plan.slots,
            first_task: process.first_task,
            reconfiguration_time: self.plan.reconfiguration_time,
            source_as_bitstream: self.plan.source_as_bitstream,
            bitstreams: self.plan.bitstreams.clone(),
            store_limit: self.plan.store_limit,
            confine: self.plan.confine,
            command_ring: self.plan.command_ring,
            folder: folder.clone(),
        };
        process.control.send(&Down::Setup(Box::new(setup)), None, Room::Now)?;
        let of_thread = (self.clone(), shared.clone(), process.clone());
        thread::Builder::new().name("tenant".to_owned()).spawn(move || {
            let (all, shared, process) = of_thread;
            let Plan { runtime, log, memory_limit, .. } = &all.plan;
            match process::start(runtime, log, &folder, theirs, *memory_limit) {
                Ok(mut child) => {
                    let tenant = process.tenant.as_str();
                    tracing::info!(tenant, pid = child.id(), "A tenant's process has started");
                    shared.config.metrics.tenant_processes.inc();
                    let ending = process.serve(&all, &shared);
                    process.retire();
                    // It may have ended by itself; it is waited for here only.
                    let _ = child.kill();
                    process.say_end(&ending, child.wait(), &shared);
                    shared.config.metrics.tenant_processes.dec();
                }
                Err(error) => tracing::error!(%error, "A tenant's process can't be started"),
            }
            process.leave_nothing(&shared);
            // What is left of the folder is removed with the manager's.
            let _ = std::fs::remove_dir_all(&folder);
            let mut by_tenant = lock(&all.by_tenant);
            if by_tenant.get(&process.tenant).is_some_and(|known| Arc::ptr_eq(known, &process)) {
                by_tenant.remove(&process.tenant);
            }
        })?;
        Ok(process)
    }

    fn all(&self) -> Vec<Arc<TenantProcess>> {
        lock(&self.by_tenant).values().cloned().collect()
    }

    /// The quotas have changed.
    pub fn settings_changed(&self, shared: &Shared) {
        let current = shared.config.settings.current();
        for process in self.all() {
            process.tell(&Down::Quota(current.quota(&process.tenant)));
        }
    }

    /// No more sessions from now on; running tasks come to their end.
    pub fn drain(&self) {
        for process in self.all() {
            process.tell(&Down::Drain);
        }
    }

    /// Ends them all, whatever they do, and waits for that.
    pub async fn end(&self) {
        let deadline = Instant::now() + END_TIMEOUT;
        for process in self.all() {
            process.retire();
        }
        while !lock(&self.by_tenant).is_empty() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

impl TenantProcess {
    /// Begins a session, unless the process is over.
    fn begin(&self, session: SessionId, locality: Locality, link: &OwnedFd) -> io::Result<bool> {
        let mut state = lock(&self.state);
        if state.life == Life::Over {
            return Ok(false);
        }
        let shares_memory_with = match locality {
            Locality::SharesMemory(process) => Some(process),
            Locality::Remote => None,
        };
        let open = Down::Open { session: session.0, shares_memory_with };
        self.control.send(&open, Some(link.as_fd()), Room::Now)?;
        state.sessions.insert(session);
        Ok(true)
    }

    fn is_idle(&self) -> bool {
        lock(&self.state).sessions.is_empty()
    }

    /// It gets no more sessions, and is told so; its thread does the rest.
    fn retire(&self) {
        lock(&self.state).life = Life::Over;
        self.control.hang_up();
    }

    /// Says something; a process that doesn't listen ends.
    fn tell(&self, packet: &Down) {
        if self.control.send(packet, None, Room::Now).is_err() {
            self.retire();
        }
    }

    /// A task of the session may start.
    pub fn grant(&self, grant: &Grant) {
        lock(&self.state).loads += grant.load.len();
        self.tell(&Down::Granted(grant.into()));
    }

    /// The session's client has connected for descriptors.
    pub fn side(&self, session: SessionId, side: &Side) {
        if self.control.send(&Down::Side { session: session.0 }, Some(side.as_fd()), Room::Now).is_err() {
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
                state.tasks.iter().filter(|(_, of)| **of == session).map(|(task, _)| *task).collect();
            for task in &of_session {
                state.tasks.remove(task);
            }
            of_session
        };
        let dispatcher = &shared.config.dispatcher;
        shared.router.deliver(dispatcher.cancel_session(session), NO_SESSION, dispatcher);
        for task in tasks {
            shared.router.deliver(dispatcher.finished(task), NO_SESSION, dispatcher);
        }
    }

    fn leave_nothing(&self, shared: &Shared) {
        let sessions = {
            let mut state = lock(&self.state);
            state.life = Life::Over;
            state.sessions.clone()
        };
        for session in sessions {
            self.close(session, shared);
        }
    }

    /// Hears the process until it ends, breaks the rules, or has nothing to do.
    fn serve(self: &Arc<Self>, all: &TenantProcesses, shared: &Shared) -> Ending {
        loop {
            let result = match self.control.receive::<Up>() {
                Ok(Received::Packet(packet, _)) => self.heard(packet, shared),
                Ok(Received::Nothing) => {
                    // Under this lock nobody gives it a session.
                    let by_tenant = lock(&all.by_tenant);
                    let mut state = lock(&self.state);
                    if state.sessions.is_empty() && state.idle_since.elapsed() >= IDLE_TIMEOUT {
                        state.life = Life::Over;
                        return Ending::Retired;
                    }
                    drop((state, by_tenant));
                    Ok(())
                }
                Ok(Received::End) => {
                    let retired = lock(&self.state).life == Life::Over;
                    return if retired { Ending::Retired } else { Ending::Died };
                }
                Err(error) => Err(error.into()),
            };
            if let Err(violation) = result {
                return Ending::Broke(violation);
            }
        }
    }

    fn heard(self: &Arc<Self>, packet: Up, shared: &Shared) -> Result<(), Violation> {
        let dispatcher = &shared.config.dispatcher;
        match packet {
            Up::Submit { session, task, kind: number, demand } => {
                let (session, id) = (SessionId(session), TaskId(task));
                if task.checked_sub(self.first_task).is_none_or(|at| at == 0 || at >= TASK_IDS) {
                    return Err(Violation::Task);
                }
                let mut state = lock(&self.state);
                // One that is over already may still be heard of.
                if !state.sessions.contains(&session) {
                    return Ok(());
                }
                if state.tasks.len() >= MAX_TASKS {
                    return Err(Violation::Tasks);
                }
                let demand = Demand::from(demand);
                if let Demand::Bitstreams(wanted) = &demand
                    && !wanted.as_slice().iter().all(|wanted| state.allowed.contains(&(session, *wanted)))
                {
                    return Err(Violation::Bitstream);
                }
                let request = TaskRequest {
                    session,
                    task: id,
                    tenant: self.tenant.clone(),
                    demand,
                    kind: kind(number),
                };
                // Under the lock: when the session closes it is known what it has.
                let granted = dispatcher.submit(request)?;
                state.tasks.insert(id, session);
                drop(state);
                if let Some(grant) = granted {
                    self.grant(&grant);
                }
            }
            Up::Finished { task } => {
                let known = lock(&self.state).tasks.remove(&TaskId(task));
                if known.is_some() {
                    let grants = dispatcher.finished(TaskId(task));
                    shared.router.deliver(grants, NO_SESSION, dispatcher);
                }
            }
            Up::Cancelled { session } => {
                let session = SessionId(session);
                if lock(&self.state).sessions.contains(&session) {
                    shared.router.deliver(dispatcher.cancel_session(session), NO_SESSION, dispatcher);
                }
            }
            Up::Reconfigured { slot, bitstream, took_us } => {
                self.reconfigured(shared, slot, bitstream, took_us);
            }
            Up::Ask { question, session, bitstream } => {
                self.asked(shared, question, SessionId(session), bitstream)?;
            }
            Up::Counted(counted) => shared.config.metrics.add(&counted),
        }
        Ok(())
    }

    /// A session wants to have a bitstream: what is resident all may, else the gate decides.
    fn asked(
        self: &Arc<Self>,
        shared: &Shared,
        question: u64,
        session: SessionId,
        bitstream: Digest,
    ) -> Result<(), Violation> {
        let Config { dispatcher, catalogue, gate, reports, metrics, .. } = &shared.config;
        {
            let mut state = lock(&self.state);
            if !state.sessions.contains(&session) {
                return Ok(());
            }
            if state.questions >= MAX_QUESTIONS || state.allowed.len() >= MAX_ALLOWED {
                return Err(Violation::Questions);
            }
            state.questions += 1;
        }
        if dispatcher.is_resident(bitstream) {
            self.answer(metrics, question, session, bitstream, Verdict::Allowed);
            return Ok(());
        }
        let answer = gate.may_reconfigure(&Question {
            session,
            tenant: self.tenant.clone(),
            device: reports.device().to_owned(),
            bitstream,
            name: catalogue.id_of(bitstream),
            others: dispatcher.others(session),
        });
        match answer {
            Answer::Now(verdict) => self.answer(metrics, question, session, bitstream, verdict),
            Answer::Later(decide) => {
                let (process, metrics) = (self.clone(), metrics.clone());
                let thread = thread::Builder::new().name("gate".to_owned());
                thread.spawn(move || process.answer(&metrics, question, session, bitstream, decide()))?;
            }
        }
        Ok(())
    }

    fn answer(
        &self,
        metrics: &Metrics,
        question: u64,
        session: SessionId,
        bitstream: Digest,
        verdict: Verdict,
    ) {
        let refused = {
            let mut state = lock(&self.state);
            state.questions = state.questions.saturating_sub(1);
            match verdict {
                Verdict::Allowed => {
                    state.allowed.insert((session, bitstream));
                    None
                }
                Verdict::Refused(reason) => {
                    metrics.reconfiguration_refusals.inc();
                    Some(reason)
                }
            }
        };
        self.tell(&Down::Answer { question, refused });
    }

    fn reconfigured(&self, shared: &Shared, slot: u32, bitstream: Digest, took_us: u64) {
        let expected = {
            let mut state = lock(&self.state);
            let expected = state.loads > 0;
            state.loads = state.loads.saturating_sub(1);
            expected
        };
        if expected && usize::try_from(slot).is_ok_and(|slot| slot < shared.config.dispatcher.slots()) {
            let took = Duration::from_micros(took_us).min(MAX_RECONFIGURATION);
            let (slot, tenant) = (SlotIndex(slot), self.tenant.clone());
            shared.config.reports.reconfigured(&Reconfigured { slot, bitstream, took, tenant });
        }
    }

    /// Tells why it has ended, if somebody should know.
    fn say_end(&self, ending: &Ending, status: io::Result<ExitStatus>, shared: &Shared) {
        let tenant = self.tenant.as_str();
        let status = status.map(|status| status.to_string()).unwrap_or_default();
        match ending {
            Ending::Retired => {
                tracing::info!(tenant, "A tenant's process has ended");
                return;
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
