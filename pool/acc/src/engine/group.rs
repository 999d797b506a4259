//! A group: its queue of actions, the jobs that hold its slots, and which action runs where.
//!
//! ```text
//!   submitted ──► queue ──► under way in a job's slot ──► delivered
//!                   ▲                │
//!                   └────────────────┘ the slot was lost, or taken away before the action ran
//! ```
//!
//! A job has only actions that it can send at once. What it can't run goes back to the head of the queue, so that any
//! other job of the group takes it.

mod action;
mod pace;

use super::owner::{MAX_FAILURES, Owner};
use crate::asked::{Asked, Known};
use crate::error::Error;
use crate::goal::GroupRequest;
use crate::slot::{Continuity, Done, SlotEnd, Work};
use crate::statistics::Statistics;
use crate::status::Where;
use crate::step::Step;
use action::Action;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use fpga_pool_api::client::Cancelled;
use fpga_pool_leases::client::{End, Repetition};
use fpga_pool_leases::ids::{GroupUuid, JobUuid, StepNumber};
use fpga_pool_leases::lease::{self, Wanted, Work as Workload};
use fpga_pool_leases::messages::CancelCause;
use pace::Pace;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use tokio::sync::{oneshot, watch};

pub(crate) use action::NewAction;

/// Time after which a group whose job was refused asks for all of its jobs again.
const ASKS_AGAIN_SECONDS: u32 = 5;

/// A group that begins.
pub(crate) struct NewGroup {
    pub(crate) id: GroupUuid,
    pub(crate) request: GroupRequest,
    pub(crate) statistics: watch::Sender<Statistics>,
}

/// A group.
pub(super) struct Group {
    asked: Asked,
    group: lease::Group,
    known: Option<Known>,
    jobs: BTreeMap<JobUuid, Member>,
    /// Number of jobs that the group is to have now: fewer than it asked for after a job was refused.
    most: u32,
    /// Why a job was refused, and the seconds until the group asks for all of its jobs again.
    refused: Option<(String, u32)>,
    /// Whether a job of the group has had a slot.
    has_begun: bool,
    actions: HashMap<StepNumber, Action>,
    queue: VecDeque<StepNumber>,
    next_action: u64,
    stage: Stage,
    /// Slots that failed before they ran an action, since the last action that was done.
    failures: u32,
    pace: Pace,
    statistics: watch::Sender<Statistics>,
}

/// A job of a group.
#[derive(Default)]
struct Member {
    has_slot: bool,
    under_way: BTreeSet<StepNumber>,
}

/// How far a group is.
enum Stage {
    /// Actions come.
    Open,
    /// No more actions come; the program is told when all have ended.
    Finishing(oneshot::Sender<Result<(), Error>>),
    /// The group can't go on.
    Wrong(Error),
}

impl Group {
    pub(super) fn new(new: NewGroup) -> Self {
        let NewGroup { id, request, statistics } = new;
        Self {
            group: request.group(id),
            most: *request.slots.end(),
            refused: None,
            has_begun: false,
            pace: Pace::new(request.goal),
            asked: request.asked,
            known: None,
            jobs: BTreeMap::new(),
            actions: HashMap::new(),
            queue: VecDeque::new(),
            next_action: 0,
            stage: Stage::Open,
            failures: 0,
            statistics,
        }
    }

    /// What each job of the group asks the broker for.
    pub(super) fn wanted(&self) -> Wanted {
        Wanted {
            accelerator: self.asked.accelerator.as_str().into(),
            work: Workload::Group(self.group),
            bundle: None,
        }
    }

    /// Whether the group needs one more job.
    pub(super) fn lacks_jobs(&self) -> bool {
        !matches!(self.stage, Stage::Wrong(_)) && !self.is_done() && self.jobs.len() < self.most as usize
    }

    /// A job of the group begins.
    pub(super) fn add_job(&mut self, job: JobUuid) {
        self.jobs.insert(job, Member::default());
    }

    pub(super) fn jobs(&self) -> Vec<JobUuid> {
        self.jobs.keys().copied().collect()
    }

    /// Puts an action at the end of the queue.
    pub(super) fn submit(&mut self, action: NewAction) {
        let number = StepNumber(self.next_action);
        self.next_action += 1;
        if let Stage::Wrong(error) = &self.stage {
            self.statistics.send_modify(|statistics| statistics.failed += 1);
            return action.output.send(Err(error.clone()));
        }
        self.actions.insert(number, Action::new(action));
        self.queue.push_back(number);
    }

    /// Puts steps that a job gives back at the head of the queue, in order.
    pub(super) fn take_back(&mut self, job: JobUuid, steps: Vec<StepNumber>, now: MonotonicTime) {
        for step in steps.into_iter().rev() {
            self.end_use(job, step, now);
            if self.actions.contains_key(&step) {
                self.queue.push_front(step);
            }
        }
    }

    /// The next action of the queue that can run, and its bytes. The others end here.
    pub(super) fn next(&mut self) -> Option<(StepNumber, u64)> {
        let interface = Arc::clone(&self.known.as_ref()?.interface);
        while let Some(number) = self.queue.pop_front() {
            let Some(action) = self.actions.get_mut(&number) else { continue };
            match action.prepare(number, &interface) {
                Ok(Some(bytes)) => return Some((number, bytes)),
                Ok(None) => {
                    self.actions.remove(&number);
                    self.statistics.send_modify(|statistics| statistics.done += 1);
                }
                Err(error) => self.fail(number, error),
            }
        }
        None
    }

    /// No more actions come.
    pub(super) fn finish(&mut self, closed: oneshot::Sender<Result<(), Error>>) {
        match &self.stage {
            Stage::Open => self.stage = Stage::Finishing(closed),
            Stage::Finishing(_) => {}
            Stage::Wrong(error) => {
                let _ = closed.send(Err(error.clone()));
            }
        }
    }

    /// Whether no more actions come and all have ended.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.stage, Stage::Finishing(_)) && self.actions.is_empty()
    }

    /// The group can't go on: all its actions fail.
    pub(super) fn go_wrong(&mut self, error: &Error) {
        if let Stage::Wrong(_) = self.stage {
            return;
        }
        if let Stage::Finishing(closed) = std::mem::replace(&mut self.stage, Stage::Wrong(error.clone())) {
            let _ = closed.send(Err(error.clone()));
        }
        let all: Vec<StepNumber> = self.actions.keys().copied().collect();
        for number in all {
            self.fail(number, error.clone());
        }
        self.queue.clear();
    }

    /// Tells the program that the group is closed, after its last job has ended.
    pub(super) fn closed(self) {
        if let Stage::Finishing(closed) = self.stage {
            let _ = closed.send(Ok(()));
        }
    }

    /// Ends a period of the forecast, a second.
    pub(super) fn end_period(&mut self, now: MonotonicTime) {
        if let Some((_, seconds)) = &mut self.refused {
            *seconds -= 1;
            if *seconds == 0 {
                (self.refused, self.most) = (None, self.group.most);
            }
        }
        self.pace.end_period(self.statistics.borrow().done, self.slots(), now);
        self.show_all(now, None);
    }

    fn slots(&self) -> u32 {
        u32::try_from(self.jobs.values().filter(|job| job.has_slot).count()).unwrap_or(u32::MAX)
    }

    fn fail(&mut self, number: StepNumber, error: Error) {
        if let Some(action) = self.actions.remove(&number) {
            self.statistics.send_modify(|statistics| statistics.failed += 1);
            action.output.send(Err(error));
        }
    }

    /// A step is not under way any more.
    fn end_use(&mut self, job: JobUuid, step: StepNumber, now: MonotonicTime) {
        if let Some(member) = self.jobs.get_mut(&job)
            && member.under_way.remove(&step)
            && member.under_way.is_empty()
        {
            self.pace.pauses(job, now);
        }
    }

    fn show_all(&mut self, now: MonotonicTime, waits: Option<String>) {
        let under_way: usize = self.jobs.values().map(|job| job.under_way.len()).sum();
        let (slots, queued) = (self.slots(), self.queue.len());
        let most = self.group.most;
        let (pace, refused) = (&self.pace, &self.refused);
        self.statistics.send_modify(|statistics| {
            (statistics.waiting, statistics.under_way) = (queued as u64, under_way as u64);
            statistics.slots = slots;
            statistics.elapsed = pace.elapsed(now);
            statistics.forecast = pace.forecast(statistics.done, slots, now);
            if slots == most {
                statistics.waits.clear();
            } else if let Some((why, _)) = refused {
                statistics.waits.clone_from(why);
            } else if let Some(waits) = waits {
                statistics.waits = waits;
            }
        });
    }
}

impl Owner for Group {
    fn queued(&mut self, interface: Option<&str>, now: MonotonicTime) -> Repetition {
        self.pace.start(now);
        if self.known.is_none() && matches!(self.stage, Stage::Open | Stage::Finishing(_)) {
            match self.asked.learn(interface) {
                Ok(known) => self.known = Some(known),
                Err(error) => self.go_wrong(&error),
            }
        }
        self.known.as_ref().map_or(Repetition::Forbidden, Known::repetition)
    }

    fn refused(&mut self, job: JobUuid, cancelled: &Cancelled) {
        if !self.jobs.contains_key(&job) {
            return;
        }
        let error = Error::refused(cancelled);
        // Whether the pool takes so many jobs is another question a while later.
        let may_change = matches!(cancelled.why, CancelCause::Full | CancelCause::Quota);
        if self.jobs.len() == 1 && !(self.has_begun && may_change) {
            return self.go_wrong(&error);
        }
        // The group goes on with the jobs that it has.
        self.most = self.most.saturating_sub(1);
        self.refused = Some((error.to_string(), ASKS_AGAIN_SECONDS));
    }

    fn is_wrong(&self) -> bool {
        matches!(self.stage, Stage::Wrong(_))
    }

    fn work(&self, digest: Digest) -> Option<Work> {
        let Known { interface, arguments } = self.known.clone()?;
        Some(Work { digest, interface, arguments, continuity: Continuity::None })
    }

    fn takes_slot_of(&mut self, _: &Arc<str>) {}

    fn send(&mut self, job: JobUuid, number: StepNumber, now: MonotonicTime) -> Option<Step> {
        let action = self.actions.get_mut(&number)?;
        if action.send() {
            self.statistics.send_modify(|statistics| statistics.repeated += 1);
        }
        let step = action.step.clone()?;
        let member = self.jobs.get_mut(&job)?;
        if member.under_way.is_empty() {
            self.pace.works(job, now);
        }
        member.under_way.insert(number);
        Some(step)
    }

    fn deliver(&mut self, job: JobUuid, done: Done, now: MonotonicTime) {
        self.end_use(job, done.step, now);
        let Some(action) = self.actions.remove(&done.step) else { return };
        self.failures = 0;
        let (slots, pace) = (self.slots(), &mut self.pace);
        self.statistics.send_modify(|statistics| {
            statistics.done += 1;
            statistics.input_bytes += action.input.len() as u64;
            statistics.output_bytes += done.output.len() as u64;
            // Who has the output finds it counted, and the goal's last one as reached.
            pace.done(statistics.done, now);
            statistics.elapsed = pace.elapsed(now);
            statistics.forecast = pace.forecast(statistics.done, slots, now);
        });
        action.output.send(Ok(done.output));
    }

    fn lost_slot(&mut self, job: JobUuid, end: &SlotEnd) {
        // A lease that is gone before the job has attached is no slot that the group had.
        if self.jobs.get(&job).is_some_and(|member| member.has_slot) {
            self.statistics.send_modify(|statistics| statistics.lost_slots += 1);
        }
        let SlotEnd::Failed(why) = end else { return };
        let first = self.jobs.get(&job).and_then(|member| member.under_way.first()).copied();
        match first.and_then(|number| self.actions.get_mut(&number).map(|action| (number, action))) {
            // It may be the action that no board can run.
            Some((number, action)) => {
                action.failures += 1;
                if action.failures >= MAX_FAILURES {
                    self.fail(number, Error::Failed { times: MAX_FAILURES, why: why.clone() });
                }
            }
            None => {
                self.failures += 1;
                if self.failures >= MAX_FAILURES {
                    self.go_wrong(&Error::Failed { times: self.failures, why: why.clone() });
                }
            }
        }
    }

    fn show(&mut self, job: JobUuid, at: Where, now: MonotonicTime) {
        if let Some(member) = self.jobs.get_mut(&job) {
            member.has_slot = at == Where::Running;
            self.has_begun |= member.has_slot;
        }
        let waits = match at {
            Where::Waiting(why) => Some(why),
            _ => None,
        };
        self.show_all(now, waits);
    }

    fn ended(&mut self, job: JobUuid, end: End, now: MonotonicTime) {
        if let Some(Member { under_way, .. }) = self.jobs.remove(&job) {
            self.pace.pauses(job, now);
            for number in under_way.into_iter().rev() {
                match end {
                    End::Lost(_) => self.fail(number, Error::Lost),
                    _ if self.actions.contains_key(&number) => self.queue.push_front(number),
                    _ => {}
                }
            }
        }
        self.show_all(now, None);
    }
}
