//! The waiting jobs of one tenant that can run in the same slot classes, indexed so that a decision does not look at
//! each job.

use super::NodeIndex;
use super::policy::{Candidates, Rank};
use std::collections::{BTreeMap, BTreeSet};

/// Where a waiting job may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Only at home as yet: the job waits for locality.
    Home,
    /// Anywhere: its home is bare, or it has waited long enough.
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
    homebound: BTreeSet<Rank>,
    anywhere: BTreeSet<Rank>,
    by_home: BTreeMap<NodeIndex, BTreeSet<Rank>>,
}

impl JobQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.homebound.is_empty() && self.anywhere.is_empty()
    }

    pub(super) fn insert(&mut self, rank: Rank, home: NodeIndex, reach: Reach) {
        self.by_reach(reach).insert(rank);
        self.by_home.entry(home).or_default().insert(rank);
    }

    pub(super) fn remove(&mut self, rank: Rank, home: NodeIndex, reach: Reach) {
        self.by_reach(reach).remove(&rank);
        if let Some(local) = self.by_home.get_mut(&home) {
            local.remove(&rank);
            if local.is_empty() {
                self.by_home.remove(&home);
            }
        }
    }

    fn by_reach(&mut self, reach: Reach) -> &mut BTreeSet<Rank> {
        match reach {
            Reach::Home => &mut self.homebound,
            Reach::Anywhere => &mut self.anywhere,
        }
    }

    /// The candidates for a slot of `node`.
    pub(super) fn candidates(&self, node: NodeIndex, remote: RemoteJobs) -> Candidates {
        let anywhere = self.anywhere.first().copied();
        Candidates {
            local: self.by_home.get(&node).and_then(BTreeSet::first).copied(),
            remote: anywhere.filter(|_| remote == RemoteJobs::Taken),
            first: anywhere.into_iter().chain(self.homebound.first().copied()).min(),
        }
    }

    /// The jobs that wait for locality and come before `before`.
    pub(super) fn homebound_before(&self, before: Option<Rank>) -> impl Iterator<Item = Rank> {
        self.homebound.iter().copied().take_while(move |rank| before.is_none_or(|before| *rank < before))
    }

    /// The jobs whose home is this node.
    pub(super) fn of_home(&self, home: NodeIndex) -> impl Iterator<Item = Rank> {
        self.by_home.get(&home).into_iter().flatten().copied()
    }
}
