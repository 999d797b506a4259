//! Which waiting task starts now: the policy chooses between the heads of the sessions (B-2, S-7, T-1).
//!
//! A session's own tasks start in the order in which they came. A task that needs slots waits behind those that the
//! policy puts before it, and while the one whose turn it is can't have all its slots, all that want slots wait; one
//! that needs none waits only behind its own session's. Of idle slots the one whose bitstream is least likely to be
//! wanted soon is loaded anew ([`crate::reuse`], S-11). Nothing here runs anything: `submit` and `finish` say what
//! the caller is to do.
//!
//! Running tasks may wait for one that has not started, as a kernel does that writes to a full channel. A session that
//! makes no progress therefore starts tasks past those that wait: see [`Dispatch::start_stalled`], also for the bound.

mod chooser;
pub mod policy;
mod profile;
mod stalled;
mod task;

pub use profile::Kind;
pub use stalled::{MIN_STALL, STALL_PER_WAIT};
pub use task::{
    EndedTask, Finished, Grant, Lanes, MAX_LANES, Refusal, SlotUsage, TaskId, TaskRequest, Tenant,
};

use crate::bitstream::Digest;
use crate::reuse::Foresight;
use crate::slots::{Assignment, Demand, MAX_TASKS_PER_SLOT, SessionId, SlotIndex, SlotTable};
use crate::units::MonotonicTime;
use chooser::{Chooser, Head};
use policy::Rules;
use profile::Profile;
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::num::NonZeroU32;
use std::time::Duration;

/// The queue and the slots of one device.
#[derive(Debug)]
pub struct Dispatch {
    slots: SlotTable,
    /// How often bitstreams are wanted: by it one is evicted.
    foresight: Foresight<Digest>,
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
    /// The sessions that hold slots.
    holders: BTreeMap<SessionId, Holder>,
    chooser: Chooser,
    profile: Profile,
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
    /// Number of the hold on the first slot; those on the others follow.
    first_hold: u64,
    kernels: Kernels,
    submitted: Duration,
    started: Duration,
    kind: Option<Kind>,
    /// Device time by the profile when it started.
    expected: Option<Duration>,
}

/// A session that holds slots.
#[derive(Debug, Clone, Copy)]
struct Holder {
    /// Its running tasks that hold slots.
    tasks: usize,
    /// When the last one of those started or ended.
    last_change: Duration,
}

/// Where the kernels of a running task come from.
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
            chooser: Chooser::new(Rules::default()),
            profile: Profile::default(),
        }
    }

    /// By which rules it chooses; first in, first out at first.
    #[must_use]
    pub fn rules(&self) -> &Rules {
        self.chooser.rules()
    }

    /// Chooses by other rules from now on: also between those that wait already.
    pub fn set_rules(&mut self, rules: Rules, now: Duration) -> Vec<Grant> {
        self.chooser.set_rules(rules);
        self.start_waiting(now)
    }

    /// The slots.
    #[must_use]
    pub fn slots(&self) -> &SlotTable {
        &self.slots
    }

    /// A bitstream is resident from the start; see [`SlotTable::preload`].
    pub fn preload(&mut self, bitstream: Digest) -> Option<SlotIndex> {
        self.slots.preload(bitstream)
    }

    /// Whether sessions other than this one hold slots or wait for some.
    #[must_use]
    pub fn others_want_slots(&self, session: SessionId) -> bool {
        let slots = 0..u32::try_from(self.slots.len()).unwrap_or(u32::MAX);
        let held = slots.filter_map(|slot| self.slots.holder(SlotIndex(slot))).any(|other| other != session);
        held || self.waiting.keys().any(|other| *other != session)
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
                // It has no rival, and is on its tenant's account like all others.
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

    /// A granted task has ended: its slots are free for others.
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

    /// What a running task was to load is not loaded: its slots hold nothing.
    pub fn load_failed(&mut self, task: TaskId) {
        let Some(running) = self.running.get(&task) else { return };
        for slot in &running.slots {
            self.slots.unload(*slot);
        }
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

    /// Starts what may start now. The head that the policy chooses holds back all others while it gets no slots, since
    /// all want some.
    fn start_waiting(&mut self, now: Duration) -> Vec<Grant> {
        let mut grants = Vec::new();
        while let Some(session) = self.choose(now) {
            let started = self.start_head_of(session, MAX_TASKS_PER_SLOT, now);
            if started.is_empty() {
                break;
            }
            grants.extend(started);
        }
        grants
    }

    /// Starts a session's head, if it gets its slots, and what needs none behind it.
    fn start_head_of(&mut self, session: SessionId, most_tasks: u32, now: Duration) -> Vec<Grant> {
        let Some(arrival) = self.first_of(session).map(|first| first.arrival) else { return Vec::new() };
        let Some(grant) = self.start_first_of(session, most_tasks, now) else { return Vec::new() };
        let mut grants = vec![grant];
        self.heads.remove(&arrival);
        while self.first_of(session).is_some_and(|next| next.request.demand == Demand::Nothing) {
            grants.extend(self.start_first_of(session, most_tasks, now));
        }
        match self.first_of(session).map(|next| next.arrival) {
            Some(next) => {
                self.heads.insert(next, session);
            }
            None => {
                self.waiting.remove(&session);
            }
        }
        grants
    }

    fn choose(&mut self, now: Duration) -> Option<SessionId> {
        let Self { heads, waiting, profile, chooser, .. } = self;
        let heads = heads.values().filter_map(|session| {
            let first = waiting.get(session)?.front()?;
            Some(head(*session, first, profile))
        });
        chooser.choose(heads, now)
    }

    fn first_of(&self, session: SessionId) -> Option<&Waiting> {
        self.waiting.get(&session).and_then(VecDeque::front)
    }

    /// Starts the first waiting task of a session, if it gets its slots.
    fn start_first_of(&mut self, session: SessionId, most_tasks: u32, now: Duration) -> Option<Grant> {
        let waiting = self.waiting.get_mut(&session)?.pop_front()?;
        let task = waiting.request.task;
        match self.start(waiting, most_tasks, now) {
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

    /// Starts a task that no other is before, if it gets its slots; those of its session only while they are held by fewer
    /// than `most_tasks`.
    fn start(&mut self, waiting: Waiting, most_tasks: u32, now: Duration) -> Result<Grant, Waiting> {
        let TaskRequest { session, task, demand, kind, .. } = &waiting.request;
        let (session, task, kind) = (*session, *task, *kind);
        let joined = self.slots.join(session, demand, most_tasks);
        let assignment = match joined {
            Some(assignment) => assignment,
            None => match self.take(session, demand, now) {
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
        let expected = self.profile.expected(kind);
        if *demand != Demand::Nothing {
            self.chooser.started(&waiting.request.tenant, expected);
            self.took(session, now);
        }
        let Assignment { slots, load, .. } = assignment;
        let running = Running {
            session,
            tenant: waiting.request.tenant,
            slots: slots.clone(),
            lanes: waiting.request.lanes,
            first_hold: self.holds + 1,
            kernels,
            submitted: waiting.since,
            started: now,
            kind,
            expected,
        };
        self.holds += slots.len() as u64;
        self.running.insert(task, running);
        Ok(Grant { session, task, slots, load })
    }

    /// Takes idle slots. Evicted is what is least likely to be wanted soon.
    fn take(&mut self, session: SessionId, demand: &Demand, now: Duration) -> Option<Assignment> {
        let foresight = &self.foresight;
        let worth = |bitstream, copies| foresight.worth(bitstream, copies, MonotonicTime::after(now));
        let assignment = self.slots.take_keeping(session, demand, worth)?;
        assignment
            .evicted
            .iter()
            .for_each(|evicted| self.foresight.evicted(*evicted, MonotonicTime::after(now)));
        Some(assignment)
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

    /// A task of a session has slots.
    fn took(&mut self, session: SessionId, now: Duration) {
        let holder = self.holders.entry(session).or_insert(Holder { tasks: 0, last_change: now });
        holder.tasks += 1;
        holder.last_change = now;
    }

    /// A task of a session has its slots no more.
    fn released(&mut self, session: SessionId, now: Duration) {
        let Some(holder) = self.holders.get_mut(&session) else { return };
        holder.tasks -= 1;
        holder.last_change = now;
        if holder.tasks == 0 {
            self.holders.remove(&session);
        }
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

/// What the policy sees of a session's first task.
fn head<'a>(session: SessionId, first: &'a Waiting, profile: &Profile) -> Head<'a> {
    let expected = profile.expected(first.request.kind);
    Head { session, tenant: &first.request.tenant, since: first.since, expected }
}

#[cfg(test)]
mod policies;
#[cfg(test)]
mod tests;
