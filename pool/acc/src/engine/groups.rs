//! Groups: their jobs begin and end, and get the actions that wait.

use super::group::{Group, NewAction, NewGroup};
use super::owner::{Owner as _, OwnerId};
use super::{Engine, Entry};
use crate::error::Error;
use crate::random::random_id;
use fpga_core::units::MonotonicTime;
use fpga_pool_leases::client::Event;
use fpga_pool_leases::ids::{GroupUuid, JobUuid};
use tokio::sync::oneshot;

impl Engine {
    pub(super) fn open_group(&mut self, new: NewGroup) {
        let id = new.id;
        self.owners.groups.insert(id, Group::new(new));
        self.touched.insert(id);
    }

    pub(super) fn submit_action(&mut self, id: GroupUuid, action: NewAction) {
        if let Some(group) = self.owners.groups.get_mut(&id) {
            group.submit(action);
            self.touched.insert(id);
        }
    }

    pub(super) fn finish_group(&mut self, id: GroupUuid, closed: oneshot::Sender<Result<(), Error>>) {
        if let Some(group) = self.owners.groups.get_mut(&id) {
            group.finish(closed);
            self.touched.insert(id);
        }
    }

    pub(super) fn cancel_group(&mut self, id: GroupUuid, now: MonotonicTime) {
        if let Some(group) = self.owners.groups.get_mut(&id) {
            group.go_wrong(&Error::Cancelled);
            self.feed_group(id, now);
            self.owners.groups.remove(&id);
        }
    }

    /// Notes that something has changed for the group of a job.
    pub(super) fn touch(&mut self, job: JobUuid) {
        if let Some(OwnerId::Group(group)) = self.jobs.get(&job).map(|entry| entry.owner) {
            self.touched.insert(group);
        }
    }

    /// Gives waiting actions to the jobs that can send them, in all groups of which something has changed.
    pub(super) fn feed_groups(&mut self, now: MonotonicTime) {
        while let Some(id) = self.touched.pop_first() {
            self.feed_group(id, now);
            // What followed from that is done as well.
            self.touched.remove(&id);
        }
    }

    fn feed_group(&mut self, id: GroupUuid, now: MonotonicTime) {
        self.complete(id, now);
        let Some(group) = self.owners.groups.get_mut(&id) else { return };
        let jobs = group.jobs();
        for job in &jobs {
            if let Some(entry) = self.jobs.get_mut(job) {
                group.take_back(*job, entry.machine.withdraw(), now);
            }
        }
        // The job with the most room first, so that no action waits behind another one while a slot is idle.
        let room =
            |engine: &Self, job: &JobUuid| engine.jobs.get(job).map_or(0, |entry| entry.machine.room());
        while let Some(job) = jobs.iter().copied().max_by_key(|job| room(self, job))
            && room(self, &job) > 0
            && let Some((step, bytes)) = self.owners.groups.get_mut(&id).and_then(Group::next)
        {
            self.tell(job, Event::Submit { step, bytes }, now);
        }
        self.end_if_over(id, now);
    }

    /// Begins the jobs that a group lacks.
    fn complete(&mut self, id: GroupUuid, now: MonotonicTime) {
        while let Some(group) = self.owners.groups.get_mut(&id).filter(|group| group.lacks_jobs()) {
            match random_id().map(JobUuid) {
                Ok(job) => {
                    group.add_job(job);
                    let entry = Entry::new(job, group.wanted(), OwnerId::Group(id));
                    self.begin(job, entry, now);
                }
                Err(error) => group.go_wrong(&error),
            }
        }
    }

    /// Ends the jobs of a group that has nothing more to do. A group that can't go on stays, and says why to the actions
    /// that are submitted, until its program drops it.
    fn end_if_over(&mut self, id: GroupUuid, now: MonotonicTime) {
        let Some(group) = self.owners.groups.get(&id) else { return };
        let is_done = group.is_done();
        if !is_done && !group.is_wrong() {
            return;
        }
        for job in group.jobs() {
            self.tell(job, Event::Cancel, now);
        }
        if is_done && let Some(group) = self.owners.groups.remove(&id) {
            group.closed();
        }
    }
}
