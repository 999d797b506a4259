//! The jobs that wait, with or without their clients.

use super::event::WaitingJob;
use crate::ids::{Attempt, BundleUuid, ConnectionId, JobUuid, LeaseId, ManagerId};
use crate::lease::{Bundle, Wanted};
use fpga_board::dispatch::Tenant;
use fpga_board::slots::SlotIndex;
use fpga_core::units::{MonotonicTime, WallTime};
use std::collections::{BTreeMap, BTreeSet};

/// A job from its first Want to its Offer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Job {
    pub(super) tenant: Tenant,
    pub(super) wanted: Wanted,
    pub(super) first_arrival: WallTime,
    pub(super) attempt: Attempt,
    link: Link,
    pub(super) phase: Phase,
}

/// A Want.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) job: JobUuid,
    pub(super) tenant: Tenant,
    pub(super) wanted: Wanted,
    /// First arrival by the ticket.
    pub(super) ticket: Option<WallTime>,
    pub(super) attempt: Attempt,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Link {
    Attached(ConnectionId),
    Detached { drop_at: MonotonicTime },
}

/// Whether a job has been granted a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Phase {
    Waiting,
    Preparing(LeaseId),
    /// The slot is reserved; other jobs of the bundle have none yet.
    Prepared(Reserved),
}

/// A slot that is reserved for a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Reserved {
    pub(super) lease: LeaseId,
    pub(super) manager: ManagerId,
    pub(super) slot: SlotIndex,
}

/// A bundle. Ids of bundles are their clients'; those of several tenants may be equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BundleKey {
    tenant: Tenant,
    id: BundleUuid,
}

/// How far a bundle is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BundleStage {
    /// A job waits, or is missing.
    Incomplete,
    /// All jobs have been granted slots.
    Granted,
    /// All jobs' slots are reserved.
    Prepared,
}

/// The jobs, by id, by connection, by bundle, and by the moment at which they are dropped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(super) struct Queue {
    jobs: BTreeMap<JobUuid, Job>,
    clients: BTreeMap<ConnectionId, BTreeSet<JobUuid>>,
    bundles: BTreeMap<BundleKey, BTreeSet<JobUuid>>,
    detached: BTreeSet<(MonotonicTime, JobUuid)>,
}

impl Job {
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        match self.link {
            Link::Attached(connection) => Some(connection),
            Link::Detached { .. } => None,
        }
    }

    /// The lease that the job has been granted.
    pub(super) fn lease(&self) -> Option<LeaseId> {
        match self.phase {
            Phase::Waiting => None,
            Phase::Preparing(lease) | Phase::Prepared(Reserved { lease, .. }) => Some(lease),
        }
    }

    fn bundle(&self) -> Option<BundleKey> {
        self.wanted.bundle.map(|Bundle { id, .. }| BundleKey { tenant: self.tenant.clone(), id })
    }

    fn waiting(&self, id: JobUuid) -> WaitingJob<'_> {
        WaitingJob {
            id,
            tenant: &self.tenant,
            wanted: &self.wanted,
            first_arrival: self.first_arrival,
            connection: self.connection(),
            preparing: self.lease(),
        }
    }
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn get(&self, id: JobUuid) -> Option<&Job> {
        self.jobs.get(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = WaitingJob<'_>> {
        self.jobs.iter().map(|(id, job)| job.waiting(*id))
    }

    pub(super) fn waiting(&self, id: JobUuid) -> Option<WaitingJob<'_>> {
        self.jobs.get(&id).map(|job| job.waiting(id))
    }

    pub(super) fn connections(&self) -> impl Iterator<Item = ConnectionId> {
        self.clients.keys().copied()
    }

    /// Adds a job, or binds a known one to a connection with what it asks for now. Returns its first arrival: the
    /// ticket's, else the known one, else the present.
    pub(super) fn want(&mut self, asked: Asked, connection: ConnectionId, now: WallTime) -> WallTime {
        let Asked { job: id, tenant, wanted, ticket, attempt } = asked;
        let known = self.remove(id);
        let first_arrival = ticket.or(known.as_ref().map(|known| known.first_arrival)).unwrap_or(now);
        let phase = known.map_or(Phase::Waiting, |known| known.phase);
        let job = Job { tenant, wanted, first_arrival, attempt, link: Link::Attached(connection), phase };
        if let Some(bundle) = job.bundle() {
            self.bundles.entry(bundle).or_default().insert(id);
        }
        self.jobs.insert(id, job);
        self.clients.entry(connection).or_default().insert(id);
        first_arrival
    }

    /// The bundle of a job.
    pub(super) fn bundle_of(&self, id: JobUuid) -> Option<BundleKey> {
        self.get(id).and_then(Job::bundle)
    }

    /// The jobs of a bundle.
    pub(super) fn bundle(&self, key: &BundleKey) -> impl Iterator<Item = (JobUuid, &Job)> {
        let jobs = self.bundles.get(key).into_iter().flatten();
        jobs.filter_map(|id| self.jobs.get(id).map(|job| (*id, job)))
    }

    pub(super) fn bundle_stage(&self, key: &BundleKey) -> BundleStage {
        let jobs = self.bundles.get(key).map_or(0, BTreeSet::len);
        let is_complete = |job: &Job| job.wanted.bundle.is_some_and(|bundle| bundle.size as usize == jobs);
        let mut stage = BundleStage::Prepared;
        for (_, job) in self.bundle(key) {
            match job.phase {
                Phase::Prepared(_) if is_complete(job) => {}
                Phase::Preparing(_) if is_complete(job) => stage = BundleStage::Granted,
                _ => return BundleStage::Incomplete,
            }
        }
        stage
    }

    pub(super) fn set_phase(&mut self, id: JobUuid, phase: Phase) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.phase = phase;
        }
    }

    pub(super) fn remove(&mut self, id: JobUuid) -> Option<Job> {
        let job = self.jobs.remove(&id)?;
        if let Some(bundle) = job.bundle()
            && let Some(jobs) = self.bundles.get_mut(&bundle)
        {
            jobs.remove(&id);
            if jobs.is_empty() {
                self.bundles.remove(&bundle);
            }
        }
        match job.link {
            Link::Attached(connection) => {
                if let Some(jobs) = self.clients.get_mut(&connection) {
                    jobs.remove(&id);
                    if jobs.is_empty() {
                        self.clients.remove(&connection);
                    }
                }
            }
            Link::Detached { drop_at } => {
                self.detached.remove(&(drop_at, id));
            }
        }
        Some(job)
    }

    /// Keeps the jobs of an ended connection until `drop_at`.
    pub(super) fn detach(&mut self, connection: ConnectionId, drop_at: MonotonicTime) {
        for id in self.clients.remove(&connection).unwrap_or_default() {
            if let Some(job) = self.jobs.get_mut(&id) {
                job.link = Link::Detached { drop_at };
                self.detached.insert((drop_at, id));
            }
        }
    }

    /// The detached jobs and when they are dropped, the earliest first.
    pub(super) fn detached(&self) -> impl Iterator<Item = (MonotonicTime, JobUuid)> {
        self.detached.iter().copied()
    }
}
