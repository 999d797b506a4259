//! Decisions for pods that are not known to wait for a node: the watch on pods is a moment behind kube-scheduler, or
//! nobody ever created the pod. They count nowhere; few are kept, and they take no room from those that count.

use super::HINT;
use crate::signals::AskedKind;
use crate::units::MonotonicTime;
use std::collections::{HashMap, VecDeque};

/// Most decisions that are kept: as many as kube-scheduler makes before the watch has told of the pods.
pub const MAX_UNCONFIRMED: usize = 256;

/// The decisions, by UID of the pod.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed {
    decisions: HashMap<Box<str>, Decision>,
    /// When each was made, the oldest first; also those that were taken since.
    oldest_first: VecDeque<(MonotonicTime, Box<str>)>,
}

/// What was decided for a pod.
#[derive(Debug)]
pub(super) struct Decision {
    pub(super) since: MonotonicTime,
    pub(super) owner: Option<Box<str>>,
    pub(super) kind: AskedKind,
    pub(super) best: Box<[Box<str>]>,
}

impl Unconfirmed {
    /// Keeps a decision in place of an older one for the same pod, and forgets the oldest if there are too many.
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

    /// Takes what was decided for the pod, if it still holds.
    pub(super) fn take(&mut self, uid: &str, now: MonotonicTime) -> Option<Decision> {
        self.decisions.remove(uid).filter(|decision| now - decision.since < HINT)
    }

    /// Forgets what was decided for the pod.
    pub(super) fn remove(&mut self, uid: &str) {
        self.decisions.remove(uid);
    }

    /// Forgets what no longer holds.
    pub(super) fn forget(&mut self, now: MonotonicTime) {
        while self.oldest_first.front().is_some_and(|(since, _)| now - *since >= HINT) {
            self.forget_oldest();
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.decisions.len().max(self.oldest_first.len())
    }

    fn forget_oldest(&mut self) {
        let Some((since, uid)) = self.oldest_first.pop_front() else { return };
        // A newer decision for the same pod has its own place.
        if self.decisions.get(&uid).is_some_and(|decision| decision.since == since) {
            self.decisions.remove(&uid);
        }
    }
}
