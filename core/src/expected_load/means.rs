//! What a pod uses in a window, learnt from those that have been there for one.
//!
//! A node's usage is split evenly over its pods, each by the time that it was there. A mean of nothing says nothing: an
//! idle function's next pod may be busy.

use super::Bound;
use crate::units::{Millis, MonotonicTime};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most owners that are told apart; pods of further ones are expected to be like the cluster's.
pub const MAX_OWNERS: usize = 50_000;

/// What is expected of pods.
#[derive(Debug, Default)]
pub(super) struct Means {
    owners: HashMap<Arc<str>, Arc<Owner>>,
    cluster: Option<f64>,
    generation: u64,
}

/// Whose pods are taken together. They share it, so that a decision over thousands of pods looks nothing up.
#[derive(Debug)]
pub(super) struct Owner {
    /// Mean usage per pod and window in milliseconds, as the bits of a float; zero while unknown.
    mean: AtomicU64,
}

/// Mean usage per pod and window, in milliseconds.
#[derive(Debug, Clone, Default)]
pub struct Learnt {
    owners: Vec<(Arc<Owner>, f64)>,
    cluster: Option<f64>,
}

#[derive(Debug, Default)]
struct Sum {
    usage: f64,
    pods: f64,
}

impl Means {
    /// Changes whenever they do.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// Of one owner's pods, else of the cluster's, else nothing.
    pub(super) fn expected(&self, owner: Option<&Owner>) -> Option<f64> {
        owner.and_then(Owner::mean).or(self.cluster)
    }

    /// The owner with this UID; none if there are too many.
    pub(super) fn owner(&mut self, uid: &str) -> Option<Arc<Owner>> {
        if let Some(owner) = self.owners.get(uid) {
            return Some(Arc::clone(owner));
        }
        if self.owners.len() >= MAX_OWNERS {
            return None;
        }
        let owner = Arc::new(Owner { mean: AtomicU64::default() });
        self.owners.insert(uid.into(), Arc::clone(&owner));
        Some(owner)
    }

    /// Takes what was learnt, and forgets owners that have no pods.
    pub(super) fn set(&mut self, learnt: &Learnt) {
        for owner in self.owners.values() {
            owner.mean.store(0, Ordering::Relaxed);
        }
        for (owner, mean) in &learnt.owners {
            owner.mean.store(mean.to_bits(), Ordering::Relaxed);
        }
        self.cluster = learnt.cluster;
        self.generation += 1;
        self.owners.retain(|_, owner| Arc::strong_count(owner) > 1);
    }

    #[cfg(test)]
    pub(super) fn of(&self, uid: &str) -> Option<f64> {
        self.expected(self.owners.get(uid).map(|owner| &**owner))
    }

    #[cfg(test)]
    pub(super) fn owners(&self) -> usize {
        self.owners.len()
    }
}

impl Owner {
    fn mean(&self) -> Option<f64> {
        let mean = f64::from_bits(self.mean.load(Ordering::Relaxed));
        (mean > 0.0).then_some(mean)
    }
}

impl Learnt {
    /// How many owners' means are known.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.owners.len()
    }

    /// Of the cluster's pods, in milliseconds; nothing if none has been there for a window.
    #[must_use]
    pub fn cluster(&self) -> Option<f64> {
        self.cluster
    }

    /// From the pods of nodes and the nodes' usage and window.
    pub(super) fn of_nodes<'n>(
        nodes: impl Iterator<Item = (&'n Vec<Bound>, (Millis, Millis))>,
        now: MonotonicTime,
    ) -> Self {
        let mut owners: HashMap<*const Owner, (&Arc<Owner>, Sum)> = HashMap::new();
        let mut cluster = Sum::default();
        for (pods, (usage, window)) in nodes {
            // The share of the window that each was there for.
            let there = |pod: &Bound| pod.elapsed(now).min(window).0 as f64 / window.0.max(1) as f64;
            let settled = pods.iter().take_while(|pod| pod.elapsed(now) >= window);
            let per_pod = usage.0 as f64 / pods.iter().map(there).sum::<f64>().max(1.0);
            for pod in settled {
                cluster.add(per_pod);
                if let Some(owner) = &pod.owner {
                    owners
                        .entry(Arc::as_ptr(owner))
                        .or_insert_with(|| (owner, Sum::default()))
                        .1
                        .add(per_pod);
                }
            }
        }
        let known = |(owner, sum): (&Arc<Owner>, Sum)| Some((Arc::clone(owner), sum.mean()?));
        Self { owners: owners.into_values().filter_map(known).collect(), cluster: cluster.mean() }
    }
}

impl Sum {
    fn add(&mut self, usage: f64) {
        self.usage += usage;
        self.pods += 1.0;
    }

    fn mean(&self) -> Option<f64> {
        (self.usage > 0.0).then(|| self.usage / self.pods)
    }
}
