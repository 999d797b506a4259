//! What a pod uses in a window, learnt from those that have been there for one.
//!
//! What boards did is split evenly over the pods that run on them, each by the time that it was there. A mean of nothing
//! says nothing: an idle function's next pod may be busy.
//!
//! **No node dominates a mean**: what the pods of one node use counts at most [`MOST_TIMES_THE_MEDIAN`] times what is in the
//! middle of all nodes that were used. A node that lies, or one that is very busy, moves the mean by its share of the nodes.

use super::Bound;
use super::claims::Claims;
use crate::staleness::Received;
use crate::units::MonotonicTime;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most owners that are told apart; pods of further ones are expected to be like the cluster's.
pub const MAX_OWNERS: usize = 50_000;

/// How far above the median of all nodes a node's usage per pod counts.
pub const MOST_TIMES_THE_MEDIAN: f64 = 4.0;

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

/// What pods were found to use, node by node.
#[derive(Debug, Default)]
struct Found(Vec<OnNode>);

/// What pods of one node were found to use.
#[derive(Debug)]
struct OnNode {
    node: usize,
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

    /// From the pods of nodes and the nodes' states.
    pub(super) fn of_nodes<'n>(
        nodes: impl Iterator<Item = (&'n Vec<Bound>, &'n Received)>,
        now: MonotonicTime,
    ) -> Self {
        let mut owners: HashMap<*const Owner, (&Arc<Owner>, Found)> = HashMap::new();
        let mut cluster = Found::default();
        for (node, (pods, received)) in nodes.enumerate() {
            let (signals, window) = (received.signals(), received.state().window);
            // The share of the window that each was there for.
            let there = |pod: &Bound| pod.elapsed(now).min(window).0 as f64 / window.0.max(1) as f64;
            let claims = Claims::of(signals, pods.iter().map(|pod| (&pod.kind, there(pod))));
            for pod in pods.iter().take_while(|pod| pod.elapsed(now) >= window) {
                let usage = signals.usage_under(&pod.kind, received.age(now));
                let per_pod = usage.0 as f64 / claims.under(&pod.kind).max(1.0);
                cluster.add(node, per_pod);
                if let Some(owner) = &pod.owner {
                    let found = owners.entry(Arc::as_ptr(owner));
                    found.or_insert_with(|| (owner, Found::default())).1.add(node, per_pod);
                }
            }
        }
        let known = |(owner, found): (&Arc<Owner>, Found)| Some((Arc::clone(owner), found.mean()?));
        Self { owners: owners.into_values().filter_map(known).collect(), cluster: cluster.mean() }
    }
}

impl Found {
    /// One more pod, of the last node or a new one.
    fn add(&mut self, node: usize, usage: f64) {
        match self.0.last_mut().filter(|last| last.node == node) {
            Some(last) => {
                last.usage += usage;
                last.pods += 1.0;
            }
            None => self.0.push(OnNode { node, usage, pods: 1.0 }),
        }
    }

    /// The mean over all pods; nothing if nothing was used.
    fn mean(&self) -> Option<f64> {
        let per_pod = |on: &OnNode| on.usage / on.pods;
        let mut used: Vec<f64> = self.0.iter().map(per_pod).filter(|usage| *usage > 0.0).collect();
        used.sort_unstable_by(f64::total_cmp);
        // Of two the lower one: it is not for the higher to say what is usual.
        let most = used.get(used.len().saturating_sub(1) / 2)? * MOST_TIMES_THE_MEDIAN;
        let usage: f64 = self.0.iter().map(|on| per_pod(on).min(most) * on.pods).sum();
        Some(usage / self.0.iter().map(|on| on.pods).sum::<f64>())
    }
}
