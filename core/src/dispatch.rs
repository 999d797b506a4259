//! Which waiting task starts now: first in, first out between the heads of the sessions (B-2, S-7).
//!
//! A session's own tasks start in the order in which they came. A task that needs slots waits behind every earlier
//! task of another session that waits for slots, so that nobody starves; one that needs none waits only behind its
//! own session's. Nothing here runs anything: `submit` and `finish` say what the caller is to do.

use crate::bitstream::Digest;
use crate::slots::{Assignment, Demand, Load, SessionId, SlotIndex, SlotTable};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// One task, unique while the device manager lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(pub u64);

/// A tenant: the identity that a session proved.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tenant(Arc<str>);

/// A task that wants to start.
#[derive(Debug, Clone)]
pub struct TaskRequest {
    /// Whose it is.
    pub session: SessionId,
    /// Its id, never used before.
    pub task: TaskId,
    /// For whom.
    pub tenant: Tenant,
    /// What it needs.
    pub demand: Demand,
}

/// A task that may start now.
///
/// Several tasks of a session may run at once. Its commands are enqueued in the order of its grants: while one of
/// them loads, the session's later ones wait for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// Whose it is.
    pub session: SessionId,
    /// Which.
    pub task: TaskId,
    /// The slots that it holds until it is finished.
    pub slots: Vec<SlotIndex>,
    /// What must be loaded before it starts.
    pub load: Vec<Load>,
}

/// What the end of a task brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finished {
    /// How long the task held slots, one entry for each.
    pub usage: Vec<SlotUsage>,
    /// Tasks that may start now.
    pub grants: Vec<Grant>,
    /// How long the task took from its submission; nothing for an unknown task.
    pub took: Option<Duration>,
}

/// A time in which a slot was held. Those of one slot never overlap, also where tasks of a session share it:
/// their sum is never more than the time that passed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotUsage {
    /// The slot.
    pub slot: SlotIndex,
    /// The bitstream that the task used there; nothing if its kernels came from source.
    pub bitstream: Option<Digest>,
    /// The task it is charged to.
    pub task: TaskId,
    /// Number of this task's hold on this slot, never used for another: progress and end of it share it.
    pub hold: u64,
    /// Whose task that is.
    pub tenant: Tenant,
    /// From, on the caller's monotonic clock.
    pub from: Duration,
    /// Until.
    pub until: Duration,
}

/// Why a task is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It can never have all its slots at once: the session splits it in command order.
    #[error(
        "the task needs {needed} bitstreams at once and the device has {slots} slots: split it in command order"
    )]
    TooManyBitstreams {
        /// How many different bitstreams it needs.
        needed: usize,
        /// How many slots there are.
        slots: usize,
    },
    /// The id is that of a task that waits or runs.
    #[error("task {} is known already", .0.0)]
    Known(TaskId),
}

/// The queue and the slots of one device.
#[derive(Debug)]
pub struct Dispatch {
    slots: SlotTable,
    /// Until when the time of each slot has been charged, while it is held.
    charged_until: Vec<Duration>,
    /// The task to which the time of each slot is charged until it ends, since its progress was told.
    claimed_by: Vec<Option<TaskId>>,
    /// Counts holds.
    holds: u64,
    /// The waiting tasks of each session that has any, in the order of arrival.
    waiting: BTreeMap<SessionId, VecDeque<Waiting>>,
    /// The sessions with waiting tasks by the arrival of their first one. That one always wants slots: one that wants
    /// none starts when it becomes the first.
    heads: BTreeMap<u64, SessionId>,
    waiting_ids: HashSet<TaskId>,
    /// Counts arrivals.
    arrivals: u64,
    running: BTreeMap<TaskId, Running>,
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
    /// Number of the hold on the first slot; those on the others follow.
    first_hold: u64,
    kernels: Kernels,
    submitted: Duration,
}

/// Where the kernels of a running task come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kernels {
    Bitstreams,
    Source,
}

impl Tenant {
    /// The tenant of that name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
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
            waiting: BTreeMap::new(),
            heads: BTreeMap::new(),
            waiting_ids: HashSet::new(),
            arrivals: 0,
            running: BTreeMap::new(),
        }
    }

    /// The slots.
    #[must_use]
    pub fn slots(&self) -> &SlotTable {
        &self.slots
    }

    /// How many tasks wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting_ids.len()
    }

    /// How many tasks run.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// A task arrives: it starts at once, or waits until a `finish` or `cancel` grants it.
    ///
    /// # Errors
    /// [`Refusal`], and nothing has changed, if it can never start.
    pub fn submit(&mut self, request: TaskRequest, now: Duration) -> Result<Option<Grant>, Refusal> {
        let needed = request.demand.slots();
        if needed > self.slots.len() {
            return Err(Refusal::TooManyBitstreams { needed, slots: self.slots.len() });
        }
        let (session, task) = (request.session, request.task);
        if self.running.contains_key(&task) || self.waiting_ids.contains(&task) {
            return Err(Refusal::Known(task));
        }
        let behind = self.waiting.contains_key(&session) || (needed > 0 && !self.heads.is_empty());
        self.arrivals += 1;
        let waiting = Waiting { request, arrival: self.arrivals, since: now };
        let waiting = if behind { Err(waiting) } else { self.start(waiting, now) };
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

    /// A granted task has ended: its slots are free for others.
    pub fn finish(&mut self, task: TaskId, now: Duration) -> Finished {
        let Some(running) = self.running.remove(&task) else { return Finished::default() };
        let usage = running.slots.iter().map(|slot| self.charge(*slot, task, &running, now)).collect();
        self.slots.release(&running.slots);
        let took = Some(now.saturating_sub(running.submitted));
        Finished { usage, grants: self.start_waiting(now), took }
    }

    /// The time so far of slots that have been held for `at_least`, charged to the task that holds each longest. It
    /// stays that task's: the usage at its end covers it again, with the same `hold`.
    pub fn progress(&mut self, at_least: Duration, now: Duration) -> Vec<SlotUsage> {
        let mut told: Vec<SlotUsage> = Vec::new();
        for (task, running) in &self.running {
            for &slot in &running.slots {
                let from = self.uncharged_since(slot, now);
                if now - from >= at_least && told.iter().all(|other| other.slot != slot) {
                    told.push(self.usage(slot, *task, running, from, now));
                }
            }
        }
        for usage in &told {
            if let Some(claim) = self.claimed_by.get_mut(usage.slot.0 as usize) {
                *claim = Some(usage.task);
            }
        }
        told
    }

    /// A session has gone: its waiting tasks are dropped. Its running ones hold their slots until they are finished.
    pub fn cancel(&mut self, session: SessionId, now: Duration) -> Vec<Grant> {
        let Some(dropped) = self.waiting.remove(&session) else { return Vec::new() };
        for waiting in dropped {
            self.heads.remove(&waiting.arrival);
            self.waiting_ids.remove(&waiting.request.task);
        }
        self.start_waiting(now)
    }

    /// Ids of a session's running tasks.
    pub fn running_of(&self, session: SessionId) -> impl Iterator<Item = TaskId> + '_ {
        self.running.iter().filter(move |(_, running)| running.session == session).map(|(task, _)| *task)
    }

    /// Starts what may start now. The first head that gets no slots holds back all others, since all want some.
    fn start_waiting(&mut self, now: Duration) -> Vec<Grant> {
        let mut grants = Vec::new();
        while let Some((arrival, session)) = self.heads.pop_first() {
            let Some(grant) = self.start_first_of(session, now) else {
                self.heads.insert(arrival, session);
                break;
            };
            grants.push(grant);
            while self.first_of(session).is_some_and(|next| next.request.demand == Demand::Nothing) {
                grants.extend(self.start_first_of(session, now));
            }
            match self.first_of(session).map(|next| next.arrival) {
                Some(next) => {
                    self.heads.insert(next, session);
                }
                None => {
                    self.waiting.remove(&session);
                }
            }
        }
        grants
    }

    fn first_of(&self, session: SessionId) -> Option<&Waiting> {
        self.waiting.get(&session).and_then(VecDeque::front)
    }

    /// Starts the first waiting task of a session, if it gets its slots.
    fn start_first_of(&mut self, session: SessionId, now: Duration) -> Option<Grant> {
        let waiting = self.waiting.get_mut(&session)?.pop_front()?;
        let task = waiting.request.task;
        match self.start(waiting, now) {
            Ok(grant) => {
                self.waiting_ids.remove(&task);
                Some(grant)
            }
            Err(waiting) => {
                self.waiting.entry(session).or_default().push_front(waiting);
                None
            }
        }
    }

    /// Starts a task that no other is before, if it gets its slots.
    fn start(&mut self, waiting: Waiting, now: Duration) -> Result<Grant, Waiting> {
        let TaskRequest { session, task, demand, .. } = &waiting.request;
        let (session, task) = (*session, *task);
        let joined = self.slots.join(session, demand);
        let assignment = match joined {
            Some(assignment) => assignment,
            None => match self.slots.take(session, demand) {
                Some(assignment) => {
                    for slot in &assignment.slots {
                        self.set_charged(*slot, now);
                    }
                    assignment
                }
                None => return Err(waiting),
            },
        };
        let kernels = match demand {
            Demand::Bitstreams(_) => Kernels::Bitstreams,
            Demand::AnySlot | Demand::Nothing => Kernels::Source,
        };
        let Assignment { slots, load } = assignment;
        let running = Running {
            session,
            tenant: waiting.request.tenant,
            slots: slots.clone(),
            first_hold: self.holds + 1,
            kernels,
            submitted: waiting.since,
        };
        self.holds += slots.len() as u64;
        self.running.insert(task, running);
        Ok(Grant { session, task, slots, load })
    }

    /// The time of a slot that has not been charged yet, which the end of `task` charges to it.
    fn charge(&mut self, slot: SlotIndex, task: TaskId, running: &Running, now: Duration) -> SlotUsage {
        let position = slot.0 as usize;
        let claimed_by_other =
            self.claimed_by.get(position).copied().flatten().is_some_and(|other| other != task);
        let from = if claimed_by_other { now } else { self.uncharged_since(slot, now) };
        if !claimed_by_other {
            self.set_charged(slot, now);
            if let Some(claim) = self.claimed_by.get_mut(position) {
                *claim = None;
            }
        }
        self.usage(slot, task, running, from, now)
    }

    fn usage(
        &self,
        slot: SlotIndex,
        task: TaskId,
        running: &Running,
        from: Duration,
        until: Duration,
    ) -> SlotUsage {
        let bitstream = match running.kernels {
            Kernels::Bitstreams => self.slots.resident_in(slot),
            Kernels::Source => None,
        };
        let at = running.slots.iter().position(|other| *other == slot).unwrap_or(0) as u64;
        let hold = running.first_hold + at;
        SlotUsage { slot, bitstream, task, hold, tenant: running.tenant.clone(), from, until }
    }

    fn uncharged_since(&self, slot: SlotIndex, now: Duration) -> Duration {
        self.charged_until.get(slot.0 as usize).copied().unwrap_or(now).min(now)
    }

    fn set_charged(&mut self, slot: SlotIndex, now: Duration) {
        if let Some(until) = self.charged_until.get_mut(slot.0 as usize) {
            *until = now;
        }
    }
}

#[cfg(test)]
mod tests;
