//! The waiting jobs of one tenant that can run in the same slot classes, indexed so that a decision does not look at
//! each job.

use super::NodeIndex;
use super::homebound::{Homebound, LongEnough, Patient};
use super::policy::{Candidates, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Where a waiting job may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// At home, and anywhere from the moment at which the job has waited long enough for locality.
    Home,
    /// Anywhere: its home is bare, or it had waited long enough when that was asked last.
    Anywhere,
}

/// Whether a node takes one more remote job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RemoteJobs {
    Taken,
    /// The node runs C remote jobs already.
    Refused,
}

/// Every job is either in `homebound` or in `anywhere`, and in `by_home` as well.
#[derive(Debug, Default)]
pub(super) struct JobQueue {
    homebound: Homebound,
    anywhere: BTreeSet<Rank>,
    by_home: BTreeMap<NodeIndex, BTreeSet<Rank>>,
}

impl JobQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.homebound.is_empty() && self.anywhere.is_empty()
    }

    /// Adds a job, which waits for locality if its reach is its home.
    pub(super) fn insert(&mut self, rank: Rank, home: NodeIndex, reach: Reach, job: Patient) {
        match reach {
            Reach::Home => self.homebound.insert(rank, job),
            Reach::Anywhere => {
                self.anywhere.insert(rank);
            }
        }
        self.by_home.entry(home).or_default().insert(rank);
    }

    /// Removes a job. Returns how often a job that waits for locality was skipped.
    pub(super) fn remove(&mut self, rank: Rank, home: NodeIndex, reach: Reach) -> Option<u32> {
        if let Some(local) = self.by_home.get_mut(&home) {
            local.remove(&rank);
            if local.is_empty() {
                self.by_home.remove(&home);
            }
        }
        match reach {
            Reach::Home => self.homebound.remove(rank),
            Reach::Anywhere => {
                self.anywhere.remove(&rank);
                None
            }
        }
    }

    /// The candidates for a slot of `node`.
    pub(super) fn candidates(
        &self,
        node: NodeIndex,
        remote: RemoteJobs,
        long_enough: LongEnough,
    ) -> Candidates {
        let anywhere = self.anywhere.first().copied();
        let first_of = |homebound: Option<Rank>| anywhere.into_iter().chain(homebound).min();
        Candidates {
            local: self.by_home.get(&node).and_then(BTreeSet::first).copied(),
            remote: match remote {
                RemoteJobs::Taken => first_of(self.homebound.first_after(long_enough)),
                RemoteJobs::Refused => None,
            },
            first: first_of(self.homebound.first()),
        }
    }

    /// Counts a skip for the jobs that wait for locality and come before `before`.
    pub(super) fn skip(&mut self, before: Option<Rank>) {
        self.homebound.skip(before);
    }

    /// The jobs whose home is this node.
    pub(super) fn of_home(&self, home: NodeIndex) -> impl Iterator<Item = Rank> {
        self.by_home.get(&home).into_iter().flatten().copied()
    }
}
