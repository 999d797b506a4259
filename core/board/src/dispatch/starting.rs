//! Starting tasks in the order that the policy chooses, and assigning slots to them.

use super::chooser::Head;
use super::profile::TaskProfile;
use super::{Dispatch, Grant, Holder, Kernels, Running, TaskRequest, Waiting};
use crate::slots::{Assignment, Demand, MAX_TASKS_PER_SLOT, SessionId};
use fpga_core::units::MonotonicTime;
use std::collections::VecDeque;
use std::time::Duration;

impl Dispatch {
    /// Starts the tasks that may start now. While the head that the policy chooses gets no slots, no other head
    /// starts, since every head needs slots.
    pub(super) fn start_waiting(&mut self, now: Duration) -> Vec<Grant> {
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

    /// Starts a session's head if it gets its slots, and the tasks behind it that need no slots.
    pub(super) fn start_head_of(&mut self, session: SessionId, most_tasks: u32, now: Duration) -> Vec<Grant> {
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

    pub(super) fn first_of(&self, session: SessionId) -> Option<&Waiting> {
        self.waiting.get(&session).and_then(VecDeque::front)
    }

    /// Starts the first waiting task of a session if it gets its slots.
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

    /// Starts a task that no other task precedes, if it gets its slots. It may share a slot with other tasks of its
    /// session only while fewer than `most_tasks` hold that slot.
    #[expect(clippy::result_large_err, reason = "the task goes back to its place, without an allocation")]
    pub(super) fn start(
        &mut self,
        waiting: Waiting,
        most_tasks: u32,
        now: Duration,
    ) -> Result<Grant, Waiting> {
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
            bytes: waiting.request.bytes,
            expected,
        };
        self.holds += slots.len() as u64;
        self.running.insert(task, running);
        Ok(Grant { session, task, slots, load })
    }

    /// Takes idle slots, evicting the bitstreams that are least likely to be wanted soon.
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

    /// Counts a task of a session that has got slots.
    fn took(&mut self, session: SessionId, now: Duration) {
        let holder = self.holders.entry(session).or_insert(Holder { tasks: 0, last_change: now });
        holder.tasks += 1;
        holder.last_change = now;
    }

    /// Counts a task of a session that has given its slots back.
    pub(super) fn released(&mut self, session: SessionId, now: Duration) {
        let Some(holder) = self.holders.get_mut(&session) else { return };
        holder.tasks -= 1;
        holder.last_change = now;
        if holder.tasks == 0 {
            self.holders.remove(&session);
        }
    }
}

/// The head of a session, as the policy sees it.
pub(super) fn head<'a>(session: SessionId, first: &'a Waiting, profile: &TaskProfile) -> Head<'a> {
    let expected = profile.expected(first.request.kind);
    Head { session, tenant: &first.request.tenant, since: first.since, expected }
}
