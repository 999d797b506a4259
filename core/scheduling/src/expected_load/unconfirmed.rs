//! Decisions about pods that are not known to wait for a node: the watch on pods lags behind kube-scheduler, or the
//! pod does not exist. Such decisions do not count. Few are stored, apart from the assumed pods.

use super::ASSUMED_POD_TTL;
use crate::signals::AskedKind;
use crate::units::MonotonicTime;
use std::collections::{HashMap, VecDeque};

/// Maximum number of decisions: as many as kube-scheduler makes while the watch lags behind.
pub const MAX_UNCONFIRMED: usize = 256;

/// The decisions, by UID of the pod.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    decisions: HashMap<Box<str>, Decision>,
    /// Time and UID of each decision, the oldest first. Includes decisions that were taken or replaced since.
    oldest_first: VecDeque<(MonotonicTime, Box<str>)>,
}

/// A decision about a pod.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) since: MonotonicTime,
    pub(super) owner: Option<Box<str>>,
    pub(super) kind: AskedKind,
    pub(super) best: Box<[Box<str>]>,
}

impl Unconfirmed {
    /// Stores a decision, which replaces an older one about the same pod. Forgets the oldest one if there are too
    /// many.
    pub(super) fn put(
        &mut self,
        uid: &str,
        owner: Option<&str>,
        kind: AskedKind,
        best: &[&str],
        since: MonotonicTime,
    ) {
        if self.oldest_first.len() >= MAX_UNCONFIRMED {
            self.forget_oldest();
        }
        let best = best.iter().map(|node| Box::from(*node)).collect();
        self.decisions.insert(uid.into(), Decision { since, owner: owner.map(Box::from), kind, best });
        self.oldest_first.push_back((since, uid.into()));
    }

    /// Removes and returns the decision about the pod, unless it is too old.
    pub(super) fn take(&mut self, uid: &str, now: MonotonicTime) -> Option<Decision> {
        self.decisions.remove(uid).filter(|decision| now - decision.since < ASSUMED_POD_TTL)
    }

    /// Forgets the decision about the pod.
    pub(super) fn remove(&mut self, uid: &str) {
        self.decisions.remove(uid);
    }

    /// Forgets decisions that are too old.
    pub(super) fn forget(&mut self, now: MonotonicTime) {
        while self.oldest_first.front().is_some_and(|(since, _)| now - *since >= ASSUMED_POD_TTL) {
            self.forget_oldest();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.decisions.len().max(self.oldest_first.len())
    }

    fn forget_oldest(&mut self) {
        let Some((since, uid)) = self.oldest_first.pop_front() else { return };
        // A newer decision about the same pod has its own entry in the queue.
        if self.decisions.get(&uid).is_some_and(|decision| decision.since == since) {
            self.decisions.remove(&uid);
        }
    }
}
