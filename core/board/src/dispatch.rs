//! Decides which waiting task starts next: the policy chooses between the first waiting tasks (heads) of the sessions
//! (B-2, S-7, T-1).
//!
//! The tasks of one session start in the order of their arrival. A task that needs slots waits behind those that the
//! policy puts before it. While the chosen task cannot have all its slots, every task that needs slots waits. A task
//! that needs none waits only for earlier tasks of its own session. A bitstream that is not resident is loaded into
//! the idle slot whose bitstream is least likely to be wanted soon ([`crate::reuse`], S-11). This module runs
//! nothing: `submit` and `finish` return the tasks that the caller is to start.
//!
//! A running task may wait for one that has not started, as a kernel does that writes to a full channel. A session
//! that makes no progress therefore starts tasks past other sessions' waiting tasks: see [`Dispatch::start_stalled`],
//! also for the bound.

mod charging;
mod chooser;
pub mod policy;
mod profile;
mod stalled;
mod starting;
mod task;

pub use profile::Kind;
pub use stalled::{MIN_STALL, STALL_PER_WAIT};
pub use task::{
    EndedTask, Finished, Grant, Lanes, MAX_LANES, SlotUsage, TaskId, TaskRefusal, TaskRequest, Tenant,
};

use crate::reuse::Foresight;
use crate::slots::{Demand, MAX_TASKS_PER_SLOT, SessionId, SlotIndex, SlotTable};
use chooser::Chooser;
use fpga_core::bitstream::Digest;
use fpga_core::units::MonotonicTime;
use policy::DispatchRules;
use profile::TaskProfile;
use starting::head;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

/// The queue and the slots of one device.
#[derive(Debug)]
pub struct Dispatch {
    slots: SlotTable,
    /// How often each bitstream is wanted; eviction goes by it.
    foresight: Foresight<Digest>,
    /// The moment up to which the time of each slot has been charged, while the slot is held.
    charged_until: Vec<Duration>,
    /// The task to which the time of each slot is charged until that task ends; set when the task's progress is
    /// reported.
    claimed_by: Vec<Option<TaskId>>,
    /// Number of holds so far.
    holds: u64,
    /// The waiting tasks of each session that has any, in the order of arrival.
    waiting: BTreeMap<SessionId, VecDeque<Waiting>>,
    /// The sessions with waiting tasks, by the arrival of their first one (the head). A head always needs slots: a
    /// task that needs none starts as soon as it is the first of its session.
    heads: BTreeMap<u64, SessionId>,
    waiting_ids: HashSet<TaskId>,
    /// Number of arrivals so far.
    arrivals: u64,
    running: BTreeMap<TaskId, Running>,
    /// The sessions that hold slots.
    holders: BTreeMap<SessionId, Holder>,
    chooser: Chooser,
    profile: TaskProfile,
}

#[derive(Debug)]
struct Waiting {
    request: TaskRequest,
    arrival: u64,
    since: Duration,
}

#[derive(Debug)]
struct Running {
    session: SessionId,
    tenant: Tenant,
    slots: Vec<SlotIndex>,
    lanes: Lanes,
    /// Number of the hold on the first slot; the holds on the other slots follow.
    first_hold: u64,
    kernels: Kernels,
    submitted: Duration,
    started: Duration,
    kind: Option<Kind>,
    bytes: u64,
    /// Device time that the profile predicted at the start.
    expected: Option<Duration>,
}

/// A session whose running tasks hold slots.
#[derive(Debug, Clone, Copy)]
struct Holder {
    /// Number of running tasks that hold slots.
    tasks: usize,
    /// When one of these tasks last started or ended.
    last_change: Duration,
}

/// The origin of the kernels of a running task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernels {
    Bitstreams,
    Source,
}

impl Dispatch {
    /// The dispatch of a device with `slots` empty slots.
    #[must_use]
    pub fn new(slots: NonZeroU32) -> Self {
        let slots = SlotTable::new(slots);
        Self {
            charged_until: vec![Duration::ZERO; slots.len()],
            claimed_by: vec![None; slots.len()],
            holds: 0,
            slots,
            foresight: Foresight::default(),
            waiting: BTreeMap::new(),
            heads: BTreeMap::new(),
            waiting_ids: HashSet::new(),
            arrivals: 0,
            running: BTreeMap::new(),
            holders: BTreeMap::new(),
            chooser: Chooser::new(DispatchRules::default()),
            profile: TaskProfile::default(),
        }
    }

    /// The rules by which the next task is chosen; first in, first out until [`Self::set_rules`] is called.
    #[must_use]
    pub fn rules(&self) -> &DispatchRules {
        self.chooser.rules()
    }

    /// Replaces the rules, also for the tasks that wait already. Returns the tasks that may start now.
    pub fn set_rules(&mut self, rules: DispatchRules, now: Duration) -> Vec<Grant> {
        self.chooser.set_rules(rules);
        self.start_waiting(now)
    }

    /// The slot table of the device.
    #[must_use]
    pub fn slots(&self) -> &SlotTable {
        &self.slots
    }

    /// Marks a bitstream as resident from the start; see [`SlotTable::preload`].
    pub fn preload(&mut self, bitstream: Digest) -> Option<SlotIndex> {
        self.slots.preload(bitstream)
    }

    /// Whether sessions other than `session` hold slots or wait for some.
    #[must_use]
    pub fn others_want_slots(&self, session: SessionId) -> bool {
        let slots = 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let held = slots.filter_map(|slot| self.slots.holder(SlotIndex(slot))).any(|other| other != session);
        held || self.waiting.keys().any(|other| *other != session)
    }

    /// Number of waiting tasks.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting_ids.len()
    }

    /// Number of running tasks.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Adds a task. The result is its grant if it starts at once, or `None` if it waits until a `finish` or `cancel`
    /// grants it.
    ///
    /// # Errors
    /// [`TaskRefusal`] if the task can never start or its id is in use; nothing has changed then.
    pub fn submit(&mut self, request: TaskRequest, now: Duration) -> Result<Option<Grant>, TaskRefusal> {
        let needed = request.demand.slots();
        if needed > self.slots.len() {
            return Err(TaskRefusal::TooManyBitstreams { needed, slots: self.slots.len() });
        }
        let (session, task) = (request.session, request.task);
        if self.running.contains_key(&task) || self.waiting_ids.contains(&task) {
            return Err(TaskRefusal::Known(task));
        }
        if let Demand::Bitstreams(bitstreams) = &request.demand {
            bitstreams
                .as_slice()
                .iter()
                .for_each(|bitstream| self.foresight.used(*bitstream, MonotonicTime::after(now)));
        }
        let behind = self.waiting.contains_key(&session) || (needed > 0 && !self.heads.is_empty());
        self.arrivals += 1;
        let waiting = Waiting { request, arrival: self.arrivals, since: now };
        let waiting = if behind {
            Err(waiting)
        } else {
            if needed > 0 {
                // The task has no rival, but the choice still keeps its tenant's account.
                let head = head(session, &waiting, &self.profile);
                self.chooser.choose(std::iter::once(head), now);
            }
            self.start(waiting, MAX_TASKS_PER_SLOT, now)
        };
        match waiting {
            Ok(grant) => Ok(Some(grant)),
            Err(waiting) => {
                self.waiting_ids.insert(task);
                let queue = self.waiting.entry(session).or_default();
                if queue.is_empty() {
                    self.heads.insert(waiting.arrival, session);
                }
                queue.push_back(waiting);
                Ok(None)
            }
        }
    }

    /// Ends a granted task and frees its slots. Returns the usage of the slots and the tasks that may start now.
    pub fn finish(&mut self, task: TaskId, now: Duration) -> Finished {
        let Some(running) = self.running.remove(&task) else { return Finished::default() };
        let usage: Vec<SlotUsage> =
            running.slots.iter().map(|slot| self.charge(*slot, task, &running, now)).collect();
        self.slots.release(&running.slots);
        if !usage.is_empty() {
            self.released(running.session, now);
            let used = usage.iter().map(|usage| usage.until.saturating_sub(usage.from)).sum();
            self.profile.measured(running.kind, used);
            self.chooser.ended(&running.tenant, running.expected, used);
        }
        let task = EndedTask {
            session: running.session,
            kind: running.kind,
            bytes: running.bytes,
            waited: running.started.saturating_sub(running.submitted),
            took: now.saturating_sub(running.submitted),
            tenant: running.tenant,
        };
        let grants = self.start_waiting(now);
        if self.running.is_empty() && self.heads.is_empty() {
            self.chooser.idle();
        }
        Finished { usage, grants, task: Some(task) }
    }

    /// Marks the slots of a running task as empty, because the load for that task failed.
    pub fn load_failed(&mut self, task: TaskId) {
        let Some(running) = self.running.get(&task) else { return };
        for slot in &running.slots {
            self.slots.unload(*slot);
        }
    }

    /// Drops the waiting tasks of a session that has ended. Its running tasks hold their slots until they are
    /// finished.
    pub fn cancel(&mut self, session: SessionId, now: Duration) -> Vec<Grant> {
        let Some(dropped) = self.waiting.remove(&session) else { return Vec::new() };
        for waiting in dropped {
            self.heads.remove(&waiting.arrival);
            self.waiting_ids.remove(&waiting.request.task);
        }
        self.start_waiting(now)
    }

    /// The ids of a session's running tasks.
    pub fn running_of(&self, session: SessionId) -> impl Iterator<Item = TaskId> + '_ {
        self.running.iter().filter(move |(_, running)| running.session == session).map(|(task, _)| *task)
    }
}

#[cfg(test)]
mod policies;
#[cfg(test)]
mod tests;
