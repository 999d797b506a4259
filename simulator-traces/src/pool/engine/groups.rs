//! Groups with goals in a run (Q): their slots, the actions in these, and the periods in which the pool looks at them.
//!
//! An action takes a slot for its time. Its data is no part of the model: it takes nothing of network cards and DMA engines.

use super::types::{GroupArrival, GroupRecord, Shared};
use fpga_cluster::qos::JobId as GroupId;
use fpga_cluster::qos::controller::{ActionQueue, JobProgress};
use fpga_cluster::shared_pool::Slot;
use std::collections::BTreeMap;
use std::time::Duration;

/// The groups of a run.
#[derive(Debug)]
pub(super) struct GroupRuns<'a> {
    arrivals: &'a [GroupArrival],
    states: Vec<State>,
    /// The group that comes next.
    next: usize,
    period: u64,
    /// Number of periods that have ended.
    periods: u64,
}

/// A group and its slots.
#[derive(Debug)]
struct State {
    stage: Stage,
    slots: BTreeMap<Slot, Work>,
    sent: u64,
    done: u64,
    /// Time in which slots did actions that have ended.
    busy: u64,
    /// Time for which the group had slots that it has given back, all together.
    held: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    Open,
    Ended(u64),
    Refused,
}

/// What a slot of a group does.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// When the group got the slot.
    since: u64,
    /// Begin and end of the action; `None`: there is no action left.
    action: Option<(u64, u64)>,
    /// Whether the slot goes back after the action.
    is_recalled: bool,
}

/// An action that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ended {
    /// The group.
    pub group: GroupId,
    /// The slot, if it goes back to the pool.
    pub free: Option<Slot>,
    /// Whether that was the last action: the group closes.
    pub is_last: bool,
}

impl<'a> GroupRuns<'a> {
    pub(super) fn of(shared: &Shared<'a>) -> Self {
        let coming = |_: &GroupArrival| State {
            stage: Stage::Coming,
            slots: BTreeMap::new(),
            sent: 0,
            done: 0,
            busy: 0,
            held: 0,
        };
        let states = shared.groups.iter().map(coming).collect();
        Self { arrivals: shared.groups, states, next: 0, period: shared.goals.period, periods: 0 }
    }

    /// When something happens next: a group comes, an action ends, or a period with an open group does.
    pub(super) fn next_event(&self) -> Option<u64> {
        let arrival = self.arrivals.get(self.next).map(|group| group.at);
        let works = self.states.iter().flat_map(|state| state.slots.values());
        let end = works.filter_map(|work| Some(work.action?.1)).min();
        let period = self.has_open().then(|| self.period_end());
        [arrival, end, period].into_iter().flatten().min()
    }

    /// The group that has come by now, if any.
    pub(super) fn arrived(&mut self, now: u64) -> Option<(GroupId, &'a GroupArrival)> {
        let group = self.arrivals.get(self.next).filter(|group| group.at <= now)?;
        self.next += 1;
        Some((id(self.next - 1), group))
    }

    /// Whether the group that has come is open now.
    pub(super) fn opened(&mut self, id: GroupId, is_open: bool) {
        if let Some(state) = self.state(id) {
            state.stage = if is_open { Stage::Open } else { Stage::Refused };
        }
    }

    /// Whether a period ends now, with an open group.
    pub(super) fn ends_period(&mut self, now: u64) -> bool {
        let ends = self.has_open() && self.period_end() <= now;
        // Periods without groups pass unseen.
        self.periods = now / self.period;
        ends
    }

    /// The groups that are open.
    pub(super) fn open(&self) -> impl Iterator<Item = GroupId> {
        let is_open = |(_, state): &(usize, &State)| state.stage == Stage::Open;
        self.states.iter().enumerate().filter(is_open).map(|(index, _)| id(index))
    }

    /// The progress of a group at the end of a period; `given` slots are its own.
    pub(super) fn progress(&self, id: GroupId, now: u64, given: u32) -> Option<JobProgress> {
        let index = usize::try_from(id.0).ok()?;
        let (group, state) = (self.arrivals.get(index)?, self.states.get(index)?);
        let under_way = |work: &Work| work.action.map_or(0, |(begin, _)| now - begin);
        let busy = state.busy + state.slots.values().map(under_way).sum::<u64>();
        let queue = if state.sent < group.actions { ActionQueue::Filled } else { ActionQueue::RanEmpty };
        let (now, busy) = (Duration::from_nanos(now), Duration::from_nanos(busy));
        Some(JobProgress { now, done: state.done, devices: given, busy, queue })
    }

    /// Begins with a slot that a group got.
    pub(super) fn grow(&mut self, id: GroupId, slot: Slot, now: u64) {
        let Some(group) = self.arrival(id) else { return };
        if let Some(state) = self.state(id) {
            let action = state.begin(group, now);
            state.slots.insert(slot, Work { since: now, action, is_recalled: false });
        }
    }

    /// Takes a slot back after its action. Returns whether it has none, and goes back now.
    pub(super) fn recall(&mut self, id: GroupId, slot: Slot, now: u64) -> bool {
        let Some(state) = self.state(id) else { return false };
        let Some(work) = state.slots.get_mut(&slot) else { return false };
        work.is_recalled = true;
        let is_idle = work.action.is_none();
        if is_idle {
            state.give_back(slot, now);
        }
        is_idle
    }

    /// Ends an action that is due, if there is one.
    pub(super) fn end_action(&mut self, now: u64) -> Option<Ended> {
        let is_due = |work: &Work| work.action.is_some_and(|(_, end)| end <= now);
        let (index, slot) = self.states.iter().enumerate().find_map(|(index, state)| {
            state.slots.iter().find(|(_, work)| is_due(work)).map(|(slot, _)| (index, *slot))
        })?;
        let (group, state) = (self.arrivals.get(index)?, self.states.get_mut(index)?);
        let work = state.slots.get(&slot).copied()?;
        let (begin, end) = work.action?;
        state.busy += end - begin;
        state.done += 1;
        let is_last = state.done == group.actions;
        if is_last {
            state.stage = Stage::Ended(now);
        }
        if work.is_recalled {
            state.give_back(slot, now);
        } else {
            let action = state.begin(group, now);
            state.slots.insert(slot, Work { action, ..work });
        }
        Some(Ended { group: id(index), free: work.is_recalled.then_some(slot), is_last })
    }

    /// Number of slots that the groups have.
    pub(super) fn slots(&self) -> usize {
        self.states.iter().map(|state| state.slots.len()).sum()
    }

    /// What became of the groups; `None` if one never ended.
    pub(super) fn records(&self) -> Option<Vec<GroupRecord>> {
        let record = |state: &State| match state.stage {
            Stage::Ended(at) => Some(GroupRecord::Ended { at, slot_time: state.held }),
            Stage::Refused => Some(GroupRecord::Refused),
            Stage::Coming | Stage::Open => None,
        };
        self.states.iter().map(record).collect()
    }

    fn has_open(&self) -> bool {
        self.states.iter().any(|state| state.stage == Stage::Open)
    }

    fn period_end(&self) -> u64 {
        (self.periods + 1) * self.period
    }

    fn arrival(&self, id: GroupId) -> Option<&'a GroupArrival> {
        self.arrivals.get(usize::try_from(id.0).ok()?)
    }

    fn state(&mut self, id: GroupId) -> Option<&mut State> {
        self.states.get_mut(usize::try_from(id.0).ok()?)
    }
}

impl State {
    /// Begins the next action, if one is left.
    fn begin(&mut self, group: &GroupArrival, now: u64) -> Option<(u64, u64)> {
        let is_left = self.stage == Stage::Open && self.sent < group.actions;
        self.sent += u64::from(is_left);
        is_left.then(|| (now, now + group.action))
    }

    fn give_back(&mut self, slot: Slot, now: u64) {
        if let Some(work) = self.slots.remove(&slot) {
            self.held += now - work.since;
        }
    }
}

fn id(index: usize) -> GroupId {
    GroupId(index as u64)
}
