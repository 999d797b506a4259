//! Tasks of a session from submission to their end: grants, simulated loading, and completions.

use super::{Building, Loading, Proof, Session, Submitted, Tasks};
use crate::calls::Decided;
use crate::clock;
use crate::commands::Body;
use crate::dependencies::{Command, QueueOrder, Step};
use crate::kinds;
use crate::model::Start;
use crate::quotas::Resource;
use crate::report::{Ended, Report};
use crate::reporting::Reconfigured;
use crate::router::Input;
use crate::task;
use fpga_board::dispatch::{Grant, Lanes, TaskId, TaskRequest};
use fpga_board::slots::SlotLoad;
use fpga_core::bitstream::Digest;
use fpga_traces::span::Outcome;
use fpga_vendor::{self as vendor, ClError, ClResult, Switched};
use std::time::Duration;
use tokio::time::Instant;

/// The queue of a command if the queue is in-order.
fn lane(command: &Command<Box<Body>>) -> Option<u64> {
    (command.order == QueueOrder::InOrder).then_some(command.queue.0)
}

impl Session {
    /// Submits the commands that can run, and reports those that have failed.
    pub(super) fn go(&mut self, step: Step<Box<Body>>) {
        let Step { ready, failed } = step;
        self.reports.extend(failed.into_iter().map(|failed| Report::Ended(Ended::failed(failed))));
        if ready.is_empty() {
            return;
        }
        if self.tasks == Tasks::Refused {
            return self.refuse(ready, ClError::LEASE_YIELDS);
        }
        let dispatcher = self.shared.config.dispatcher.clone();
        for task::Task { commands, demand } in
            task::split(ready, dispatcher.max_bitstreams(), |body| body.need)
        {
            let task = dispatcher.new_task();
            let lanes = Lanes::of(commands.iter().map(lane));
            let kind = commands.iter().filter_map(|command| command.body.kind).reduce(kinds::then);
            let bytes = commands.iter().map(|command| command.body.taken_in()).fold(0, u64::saturating_add);
            let tenant = self.tenant.clone();
            let charge = match self.account.charge(Resource::QueuedTasks, 1) {
                Ok(charge) => charge,
                Err(refused) => {
                    self.refuse(commands, refused);
                    continue;
                }
            };
            let request = TaskRequest { session: self.id, task, tenant, demand, lanes, kind, bytes };
            match dispatcher.submit(request) {
                Ok(grant) => {
                    self.charges.insert(task, charge);
                    let arrivals = commands.iter().map(|command| (command.event, command.body.received_at));
                    self.traced.submitted(task, arrivals);
                    self.backlog.push(task, Submitted { commands, at: clock::now_ns() });
                    if let Some(grant) = grant {
                        self.grant(grant);
                    }
                }
                Err(refusal) => {
                    tracing::error!(task = task.0, %refusal, "A task was refused");
                    self.refuse(commands, ClError::OUT_OF_RESOURCES);
                }
            }
        }
    }

    /// Reports commands that will not run as failed.
    fn refuse(&mut self, commands: Vec<Command<Box<Body>>>, error: ClError) {
        for Command { event, wait, .. } in commands {
            self.dependencies.begun(&wait);
            self.dependencies.ended(event, error.0);
            self.reports.push(Report::Ended(Ended::at_once(event, error.0)));
        }
    }

    pub(super) fn grant(&mut self, grant: Grant) {
        if let Err(unknown) = self.backlog.grant(grant) {
            tracing::error!(task = unknown.task.0, "A task was granted that is not waiting");
            self.give_back(vec![unknown]);
        }
        self.start_granted();
    }

    /// Starts the tasks that have their slots, in the order of the grants. Stops at a task whose bitstream must be
    /// loaded.
    pub(super) fn start_granted(&mut self) {
        while self.loading.is_none()
            && self.switching.is_none()
            && self.board_load.is_none()
            && let Some(grant) = self.backlog.first()
        {
            self.traced.granted(grant.task, clock::now_ns());
            let time = self.load_wait();
            let loads = u32::try_from(grant.load.len()).unwrap_or(u32::MAX);
            if loads > 0 && self.switch() {
                return;
            }
            if loads > 0 {
                // Loads follow one another, since a board has one configuration port.
                let (now, now_ns) = (Instant::now(), clock::now_ns());
                let load = self.shared.config.port.reserve(now_ns, time.saturating_mul(loads));
                let (begins, ends) = load.after(now_ns);
                self.loading = Some(Loading { since: now + begins, until: now + ends });
                if !time.is_zero() {
                    return;
                }
            }
            if !self.start_first() {
                return;
            }
        }
    }

    /// Starts the reconfiguration of the whole board if the board is reconfigured as a whole: once no call, build
    /// or task uses the board, all contexts are destroyed and made again. Returns whether a reconfiguration has
    /// been started.
    fn switch(&mut self) -> bool {
        let Some(closed) = self.shared.config.board.close() else { return false };
        let inbox = self.inbox.clone();
        let load = self.backlog.first().map(|grant| grant.load.clone()).unwrap_or_default();
        let images: Vec<Digest> = load.iter().map(|load| load.bitstream).collect();
        let work = move || {
            let switched = closed.reconfigure(&images);
            // A session that has ended needs no message.
            let _ = inbox.send(Input::Switched(switched));
        };
        match std::thread::Builder::new().name("reconfigure".to_owned()).spawn(work) {
            Ok(_) => self.switching = Some(Instant::now()),
            Err(error) => {
                tracing::error!(%error, "No thread for a reconfiguration: the old contexts stay");
                return false;
            }
        }
        true
    }

    fn switched(&mut self, switched: Switched) {
        let Some(since) = self.switching.take() else { return };
        let Switched { restored, lost, failed_loads, loads } = switched;
        if loads + failed_loads > 0
            && let Some(grant) = self.backlog.first()
        {
            let images: Vec<Digest> = grant.load.iter().map(|load| load.bitstream).collect();
            let loaded = if failed_loads == 0 { Ok(()) } else { Err(()) };
            self.shared.config.health.load_ended(&images, &loaded);
        }
        if failed_loads > 0
            && let Some(task) = self.backlog.first().map(|grant| grant.task)
        {
            // The task's commands fail by themselves, since their kernels do not exist.
            self.shared.config.dispatcher.load_failed(task);
        }
        tracing::debug!(restored, lost, took = ?since.elapsed(), "The board was reconfigured as a whole");
        let loads = self.backlog.first().map_or(0, |grant| grant.load.len());
        let modelled = self.load_wait().saturating_mul(u32::try_from(loads).unwrap_or(u32::MAX));
        self.loading = Some(Loading { since, until: Instant::now() + modelled });
    }

    /// How long the commands of a task wait for the load of one bitstream before they are enqueued.
    ///
    /// On a modelled board they don't: the model adds the load to the time at which the commands end, and the runtime
    /// computes the results meanwhile. Else a command would end late by the time of its computation.
    fn load_wait(&self) -> Duration {
        if self.shared.config.model.is_some() {
            Duration::ZERO
        } else {
            self.shared.config.reconfiguration_time
        }
    }

    /// Continues after another session has opened the board again.
    pub(super) fn board_opened(&mut self) {
        self.start_granted();
    }

    /// Continues when the simulated load time of the first task is over.
    pub(super) fn loaded(&mut self) {
        self.start_first();
        self.start_granted();
    }

    /// Reports the load for the first task, if there was one, which has just ended.
    pub(super) fn report_load(&mut self, loaded: &ClResult<()>) {
        let Some(loading) = self.loading.take() else { return };
        let Some(grant) = self.backlog.first().cloned() else { return };
        self.report_load_of(&grant, loading, loaded);
    }

    /// Reports a load for this grant, which has just ended.
    pub(super) fn report_load_of(&mut self, grant: &Grant, loading: Loading, loaded: &ClResult<()>) {
        let outcome = if loaded.is_ok() { Outcome::Done } else { Outcome::Failed };
        let Loading { since, .. } = loading;
        let loads = u32::try_from(grant.load.len()).unwrap_or(u32::MAX).max(1);
        let elapsed = since.elapsed();
        let measured = match &self.shared.config.model {
            Some(board) => board.reconfiguration().saturating_mul(loads),
            None => elapsed,
        };
        let begins_ns = clock::now_ns().saturating_sub(clock::nanos(elapsed));
        let each_ns = clock::nanos(measured / loads);
        for (SlotLoad { bitstream, .. }, place) in grant.load.iter().zip(0..) {
            let name = self.shared.config.catalogue.id_of(*bitstream).to_string();
            let times = (begins_ns.saturating_add(each_ns.saturating_mul(place)), each_ns);
            self.traced.loaded(grant.task, &name, times, outcome);
        }
        let is_unknown = self.shared.config.model.is_none()
            && self.shared.config.reconfiguration_time.is_zero()
            && !vendor::objects_are_remembered();
        let took = if is_unknown { Duration::ZERO } else { measured };
        for SlotLoad { slot, bitstream } in &grant.load {
            self.shared.config.reports.reconfigured(&Reconfigured {
                slot: *slot,
                bitstream: *bitstream,
                took: took / loads,
                tenant: self.tenant.clone(),
            });
        }
    }

    /// Starts the first granted task. Returns false if the task must wait for the board.
    fn start_first(&mut self) -> bool {
        let Some(used) = self.shared.config.board.enter() else { return false };
        let first = self.backlog.first().map(|grant| grant.task);
        if let Some((_, what)) = self.on_board.take_if(|(of, _)| Some(*of) == first) {
            self.on_board(what, &used);
            return true;
        }
        let loaded = self.load_first();
        self.report_load(&loaded);
        let start = self.backlog.first().map(|grant| (grant.slots.clone(), grant.load.len()));
        let Some((task, Submitted { mut commands, at })) = self.backlog.pop() else { return true };
        if let Err(error) = loaded {
            tracing::warn!(%error, "The board can't be loaded: the task fails");
            self.shared.config.dispatcher.load_failed(task);
            self.refuse(commands, error);
            self.task_ended(task);
            return true;
        }
        if let Some((slots, loads)) = start {
            let loads = u32::try_from(loads).unwrap_or(u32::MAX);
            self.executor.model(&Start { submitted: at, slots, loads }, &mut commands);
        }
        let ended = self.executor.start((task, &used), commands, &mut self.dependencies, &mut self.reports);
        self.uses.insert(task, used);
        if ended {
            self.task_ended(task);
        }
        true
    }

    pub(super) fn task_ended(&mut self, task: TaskId) {
        self.traced.ended(task);
        self.charges.remove(&task);
        self.uses.remove(&task);
        let dispatcher = &self.shared.config.dispatcher;
        let grants = dispatcher.finished(task);
        let mine = self.shared.router.deliver(grants, self.id, dispatcher);
        for grant in mine {
            // Every caller continues with `start_granted`, which starts the task.
            if let Err(unknown) = self.backlog.grant(grant) {
                self.give_back(vec![unknown]);
            }
        }
    }

    /// Takes the ends of commands of which the client and the dispatcher have been told.
    pub(super) fn take_ends(&mut self) {
        let ends = self.inbox.doze().take();
        if ends.is_empty() {
            return;
        }
        for (event, status) in ends {
            self.take(Input::Ended(event, status));
        }
        self.tell();
    }

    pub(super) fn take(&mut self, input: Input) {
        match input {
            Input::EndsLeft => self.take_ends(),
            Input::Ended(event, status) => {
                let last = self.executor.finish(event, status, &mut self.dependencies, &mut self.reports);
                if let Some(task) = last {
                    self.task_ended(task);
                    self.start_granted();
                }
            }
            Input::PieceEnded(event) => self.executor.piece_ended(event, &mut self.reports),
            Input::Granted(grant) => self.grant(grant),
            Input::FdChannel(side) => match side.welcome() {
                Ok(()) => self.side = Some(side),
                Err(error) => tracing::debug!(%error, "A side socket is gone already"),
            },
            Input::Built(reply, _) => {
                self.building = Building::No;
                self.answer(*reply);
                self.end_held_task();
                self.start_granted();
            }
            Input::Loaded(loaded) => self.program_loaded(*loaded),
            Input::Switched(switched) => self.switched(switched),
            Input::Yield => {
                if self.tasks == Tasks::Start {
                    self.tasks = Tasks::Refused;
                    self.outgoing.yields();
                }
            }
            Input::Revoked(status) => self.proof = Proof::Revoked(status),
            Input::Decided(waiting, verdict) => {
                self.decided = Some((waiting, verdict));
                self.go_on_decided();
            }
        }
    }

    /// Continues the call that waited for the gate's decision, if the board is open.
    pub(super) fn go_on_decided(&mut self) {
        let Some((waiting, verdict)) = self.decided.take() else { return };
        let Some(used) = self.shared.config.board.enter() else {
            self.decided = Some((waiting, verdict));
            return;
        };
        self.building = Building::No;
        match self.calls().decided(*waiting, verdict) {
            Decided::Reply(reply) => self.answer(reply),
            Decided::Load(load) => self.load(load, &used),
        }
    }
}
