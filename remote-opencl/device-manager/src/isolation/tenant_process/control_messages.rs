//! Handles the packets of a tenant process. They are not trusted: a packet can name only the process's own
//! sessions and tasks, within bounds.

use super::{Life, NO_SESSION, State, TASK_IDS, Task, TaskLoad, TenantProcess};
use crate::isolation::packets::{FromTenant, ToTenant, kind};
use fpga_board::dispatch::{Lanes, TaskId, TaskRequest};
use fpga_board::slots::{Demand, SessionId, SlotIndex, SlotLoad};
use fpga_board::whole_board::{Step, TimeLimits, UnknownRound, Word};
use fpga_core::bitstream::Digest;
use fpga_core::gate::Origin;
use fpga_session::builds::BuildPermit;
use fpga_session::config::{Config, Loads};
use fpga_session::gate::{GateAnswer, Question, Verdict};
use fpga_session::governor::Lasting;
use fpga_session::health::LaunchOutcome;
use fpga_session::metrics::Metrics;
use fpga_session::programs::Sources;
use fpga_session::reporting::Reconfigured;
use fpga_session::session::Shared;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Most unfinished tasks of a process: far more than its own quota allows.
const MAX_TASKS: usize = 1 << 17;
/// Most unanswered questions of a process about bitstreams, and most permitted pairs of session and bitstream.
const MAX_QUESTIONS: usize = 1 << 12;
const MAX_ALLOWED: usize = 1 << 16;
/// Most grants of bytes and build places that a process holds: far more than its sessions have segments.
const MAX_HELD: usize = 1 << 16;
/// Time after which a build loses its place if builds of other tenants wait.
const BUILD_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest reconfiguration time that is accepted from a process. A load of the whole board that takes longer ends the
/// process.
const MAX_RECONFIGURATION: Duration = Duration::from_secs(600);

/// A breach of the protocol, which ends the process.
#[derive(Debug, thiserror::Error)]
pub(in crate::isolation) enum Violation {
    #[error("its first packet is another than it should be, or comes again")]
    First,
    #[error("it uses an id of a task that it has not")]
    Task,
    #[error("it has too many tasks")]
    Tasks,
    #[error("it asks too much")]
    Questions,
    #[error("it wants a bitstream that its session may not have")]
    Bitstream,
    #[error("it holds what it was not given, or more than anybody does")]
    Held,
    #[error("it builds more programs than it may")]
    Builds,
    #[error("it has built a program for too long, and others wait")]
    Build,
    #[error("it speaks of a board that is reconfigured as a whole, and this one is not")]
    Board,
    #[error("it has not left the board in time, which is to be reconfigured as a whole")]
    Stays,
    #[error("it has not ended in time its load of the board, which is reconfigured as a whole")]
    Loads,
    #[error(transparent)]
    Round(#[from] UnknownRound),
    #[error("a task was refused: {0}")]
    Refused(#[from] fpga_board::dispatch::TaskRefusal),
    #[error("it does not listen, or says what is no packet: {0}")]
    Deaf(#[from] io::Error),
}

/// A grant that the process gives back.
#[derive(Debug)]
pub(super) enum Held {
    /// Lasting bytes.
    Bytes(#[expect(dead_code, reason = "held until it is dropped")] Lasting),
    /// A place for a build, and the time when it was given.
    Build(#[expect(dead_code, reason = "held until it is dropped")] BuildPermit, Instant),
}

impl TenantProcess {
    pub(super) fn handle(self: &Arc<Self>, packet: FromTenant, shared: &Shared) -> Result<(), Violation> {
        let dispatcher = &shared.config.dispatcher;
        match packet {
            FromTenant::Confined => return Err(Violation::First),
            FromTenant::Submit { session, task, kind: number, demand, lanes, bytes } => {
                let (session, id) = (SessionId(session), TaskId(task));
                if task.checked_sub(self.first_task).is_none_or(|at| at == 0 || at >= TASK_IDS) {
                    return Err(Violation::Task);
                }
                let mut state = self.state.lock();
                // The session may have ended before this packet arrived.
                if !state.sessions.contains_key(&session) {
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
                let bitstreams = match &demand {
                    Demand::Bitstreams(wanted) => wanted.as_slice().to_vec(),
                    Demand::AnySlot | Demand::Nothing => Vec::new(),
                };
                let request = TaskRequest {
                    session,
                    task: id,
                    tenant: self.tenant.clone(),
                    demand,
                    lanes: lanes.map_or(Lanes::Any, |lanes| Lanes::of(lanes.into_iter().map(Some))),
                    kind: kind(number),
                    bytes,
                };
                // Submitted under the lock, so that the task is known when the session closes.
                let granted = dispatcher.submit(request)?;
                state.tasks.insert(id, Task { session, bitstreams, load: TaskLoad::None });
                drop(state);
                if let Some(grant) = granted {
                    self.grant(&grant);
                }
            }
            FromTenant::Finished { task, launches } => {
                let (ran, known) = {
                    let mut state = self.state.lock();
                    state.loads.ended(TaskId(task));
                    (state.granted.remove(&TaskId(task)), state.tasks.remove(&TaskId(task)))
                };
                if let Some(known) = known {
                    if ran {
                        self.tell_health(shared, &known, launches);
                    }
                    if self.board.as_ref().is_some_and(|board| board.ended(TaskId(task))) {
                        dispatcher.load_failed(TaskId(task));
                    }
                    let grants = dispatcher.finished(TaskId(task));
                    shared.router.deliver(grants, NO_SESSION, dispatcher);
                    self.tasks_ended.notify_waiters();
                }
            }
            FromTenant::LoadFailed { task } => {
                if let Some(known) = self.state.lock().tasks.get_mut(&TaskId(task)) {
                    known.load = TaskLoad::Failed;
                    dispatcher.load_failed(TaskId(task));
                }
            }
            FromTenant::Cancelled { session } => {
                let session = SessionId(session);
                if self.state.lock().sessions.contains_key(&session) {
                    shared.router.deliver(dispatcher.cancel_session(session), NO_SESSION, dispatcher);
                }
            }
            FromTenant::Board(word) => self.said(word)?,
            FromTenant::Reconfigured { slot, bitstream, took_us } => {
                let load = SlotLoad { slot: SlotIndex(slot), bitstream };
                self.reconfigured(shared, load, Duration::from_micros(took_us));
            }
            FromTenant::Ask { question, session, bitstream, origin } => {
                self.asked(shared, question, (SessionId(session), bitstream), origin)?;
            }
            FromTenant::Hold { question, bytes } => self.wants_bytes(question, bytes)?,
            FromTenant::Build { question } => self.wants_to_build(question, shared)?,
            FromTenant::GiveBack { question } => self.gives_back(question)?,
            FromTenant::Counted(counted) => shared.config.metrics.add(&counted, &shared.config.tracer),
            FromTenant::Spans(spans) => {
                let spans = spans.into_iter().filter_map(|span| span.of(&self.tenant));
                shared.config.tracer.record(spans);
            }
        }
        Ok(())
    }

    /// Grants lasting bytes to the tenant if the limit of all tenants together allows it.
    fn wants_bytes(&self, question: u64, bytes: u64) -> Result<(), Violation> {
        let refused = {
            let mut state = self.state.lock();
            state.may_hold(question)?;
            match self.account.lasting(bytes) {
                Some(lasting) => {
                    state.held.insert(question, Held::Bytes(lasting));
                    None
                }
                None => Some("no memory is left".to_owned()),
            }
        };
        self.tell(&ToTenant::answer(question, refused));
        Ok(())
    }

    /// Waits, on a thread of its own, for a place among the builds of all tenants, and then answers the
    /// process.
    fn wants_to_build(self: &Arc<Self>, question: u64, shared: &Shared) -> Result<(), Violation> {
        let builds = shared.config.builds.clone();
        {
            let mut state = self.state.lock();
            state.may_hold(question)?;
            if state.builds >= builds.most_of_tenant() {
                return Err(Violation::Builds);
            }
            state.builds += 1;
        }
        let process = self.clone();
        thread::Builder::new().name("build".to_owned()).spawn(move || {
            let place = builds.enter(&process.tenant);
            let mut state = process.state.lock();
            if state.life != Life::Lives {
                return;
            }
            state.held.insert(question, Held::Build(place, Instant::now()));
            drop(state);
            process.tell(&ToTenant::answer(question, None));
        })?;
        Ok(())
    }

    fn gives_back(&self, question: u64) -> Result<(), Violation> {
        let mut state = self.state.lock();
        let held = state.held.remove(&question).ok_or(Violation::Held)?;
        if matches!(held, Held::Build(..)) {
            state.builds -= 1;
        }
        // Dropped after the lock is released, since dropping notifies waiters.
        drop(state);
        drop(held);
        Ok(())
    }

    /// Ends a process whose build has run for longer than [`BUILD_TIMEOUT`] if other tenants wait for its
    /// place, since a compiler can be made to run for ever; and one that does not leave or load the board in time.
    pub(super) fn makes_room(&self, shared: &Shared) -> Result<(), Violation> {
        let mut state = self.state.lock();
        if let Some(step) = state.overdue(self.now(), shared.config.abandoned_grace) {
            let (life, violation) = match step {
                Step::Leave(_) => (Life::Stays, Violation::Stays),
                Step::Load | Step::Return => (Life::Loads, Violation::Loads),
            };
            state.life = life;
            return Err(violation);
        }
        let overstays = state.a_build_overstays(Instant::now());
        drop(state);
        if overstays && shared.config.builds.are_wanted_by_others(&self.tenant) {
            return Err(Violation::Build);
        }
        Ok(())
    }

    /// Passes the outcome of a task to the health of the device, where it counts as the report of one tenant.
    fn tell_health(&self, shared: &Shared, task: &Task, launches: Option<LaunchOutcome>) {
        let health = &shared.config.health;
        if shared.config.loads == Loads::ByVendor {
            let loaded = match task.load {
                TaskLoad::None => None,
                TaskLoad::Granted => Some(Ok(())),
                TaskLoad::Failed => Some(Err(())),
            };
            if let Some(loaded) = loaded {
                health.load_said_to_end(&self.tenant, &task.bitstreams, &loaded);
            }
        }
        if let Some(outcome) = launches {
            health.launch_said_to_end(&self.tenant, outcome);
        }
    }

    /// Decides whether a session may have a bitstream, as the gate decides. That a bitstream is built from source the
    /// process says; it is believed where such bitstreams are.
    fn asked(
        self: &Arc<Self>,
        shared: &Shared,
        question: u64,
        (session, bitstream): (SessionId, Digest),
        said: Origin,
    ) -> Result<(), Violation> {
        let Config { dispatcher, catalogue, gate, reports, metrics, sources, .. } = &shared.config;
        let said = match (said, sources) {
            (Origin::Source, Sources::AsBitstream) => Origin::Source,
            _ => Origin::Client,
        };
        let token = {
            let mut state = self.state.lock();
            let Some(token) = state.sessions.get(&session).copied() else { return Ok(()) };
            if state.questions >= MAX_QUESTIONS || state.allowed.len() >= MAX_ALLOWED {
                return Err(Violation::Questions);
            }
            state.questions += 1;
            token
        };
        let answer = gate.may_reconfigure(&Question {
            session,
            tenant: self.tenant.clone(),
            token,
            device: reports.device().to_owned(),
            bitstream,
            name: catalogue.id_of(bitstream),
            origin: catalogue.origin(bitstream, said),
            residency: dispatcher.residency(bitstream),
            others: dispatcher.others(session),
        });
        match answer {
            GateAnswer::Now(verdict) => self.answer(metrics, question, session, bitstream, verdict),
            GateAnswer::Later(decide) => {
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
            let mut state = self.state.lock();
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
        self.tell(&ToTenant::answer(question, refused));
    }

    /// Passes on what the process says about a board that is reconfigured as a whole.
    pub(super) fn said(&self, word: Word) -> Result<(), Violation> {
        let board = self.board.as_ref().ok_or(Violation::Board)?;
        // Before the board takes the word, since it may answer with the next order.
        self.state.lock().deadline.said(word)?;
        board.said(self.member(), word);
        Ok(())
    }

    fn reconfigured(&self, shared: &Shared, load: SlotLoad, took: Duration) {
        let Some(took) = self.state.lock().loads.reported(load, took, self.now()) else { return };
        let (SlotLoad { slot, bitstream }, took) = (load, took.min(MAX_RECONFIGURATION));
        let tenant = self.tenant.clone();
        shared.config.reports.reconfigured(&Reconfigured { slot, bitstream, took, tenant });
    }
}

impl State {
    /// Checks that the process may hold one more grant, under the number `question`.
    fn may_hold(&self, question: u64) -> Result<(), Violation> {
        if self.held.len() >= MAX_HELD || self.held.contains_key(&question) {
            return Err(Violation::Held);
        }
        Ok(())
    }

    /// What the process should have done for the board by now. A build can't be stopped, so the process then has more time
    /// than `leave`.
    pub(super) fn overdue(&self, now: Duration, leave: Duration) -> Option<Step> {
        let leave = if self.builds > 0 { BUILD_TIMEOUT } else { leave };
        self.deadline.overdue(now, TimeLimits { leave, load: MAX_RECONFIGURATION })
    }

    fn a_build_overstays(&self, now: Instant) -> bool {
        self.builds > 0
            && self.held.values().any(|held| {
                matches!(held, Held::Build(_, since) if now.saturating_duration_since(*since) >= BUILD_TIMEOUT)
            })
    }
}
