//! The mean usage of a pod in a window, learnt from pods that have been bound for a whole window.
//!
//! The usage of boards is divided among the pods that run on them, by the time for which each was bound. A mean of
//! zero is discarded, since the next pod of an idle function may be busy.
//!
//! **No node dominates a mean.** The usage per pod of one node counts at most as [`MOST_TIMES_THE_MEDIAN`] times the
//! median of all nodes with usage. A hostile or very busy node moves the mean by its share of the nodes.

use super::Bound;
use super::claims::Claims;
use crate::staleness::Received;
use crate::units::MonotonicTime;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Maximum number of owners that are told apart. Pods of further owners have the mean of the cluster.
pub const MAX_OWNERS: usize = 50_000;

/// Maximum ratio of a node's usage per pod to the median of all nodes.
pub const MOST_TIMES_THE_MEDIAN: f64 = 4.0;

/// The mean usage of the pods of each owner and of the cluster.
#[derive(Debug, Default)]
pub(super) struct Means {
    owners: HashMap<Arc<str>, Arc<Owner>>,
    cluster: Option<f64>,
    /// Number of changes so far.
    generation: u64,
}

/// An owner: the controller of several pods. Its pods share the value, so that a decision over thousands of pods needs
/// no lookup.
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

/// The measured usage of pods by node.
#[derive(Debug, Default)]
struct Found(Vec<OnNode>);

/// The measured usage of pods of one node.
#[derive(Debug)]
struct OnNode {
    /// Number of the node.
    node: usize,
    usage: f64,
    pods: f64,
}

impl Means {
    /// A number that changes whenever a mean changes.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    /// The mean of the owner's pods, else that of the cluster's pods, in milliseconds; `None` if neither is known.
    pub(super) fn expected(&self, owner: Option<&Owner>) -> Option<f64> {
        owner.and_then(Owner::mean).or(self.cluster)
    }

    /// The owner with this UID; `None` if there are [`MAX_OWNERS`] others.
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

    /// Replaces all means by `learnt`, and forgets owners without pods.
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
    /// Number of owners whose mean is known.
    #[must_use]
    pub fn owners(&self) -> usize {
        self.owners.len()
    }

    /// The mean of the cluster's pods, in milliseconds; `None` if no pod has been bound for a window, or no usage
    /// was measured.
    #[must_use]
    pub fn cluster(&self) -> Option<f64> {
        self.cluster
    }

    /// Learns from the pods and the state of each node.
    pub(super) fn of_nodes<'n>(
        nodes: impl Iterator<Item = (&'n Vec<Bound>, &'n Received)>,
        now: MonotonicTime,
    ) -> Self {
        let mut owners: HashMap<*const Owner, (&Arc<Owner>, Found)> = HashMap::new();
        let mut cluster = Found::default();
        for (node, (pods, received)) in nodes.enumerate() {
            let (signals, window) = (received.signals(), received.state().window);
            // The share of the window for which a pod was bound.
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
    /// Adds a pod of the last node or of a new one.
    fn add(&mut self, node: usize, usage: f64) {
        match self.0.last_mut().filter(|last| last.node == node) {
            Some(last) => {
                last.usage += usage;
                last.pods += 1.0;
            }
            None => self.0.push(OnNode { node, usage, pods: 1.0 }),
        }
    }

    /// The mean over all pods; `None` if no usage was measured.
    fn mean(&self) -> Option<f64> {
        let per_pod = |on: &OnNode| on.usage / on.pods;
        let mut used: Vec<f64> = self.0.iter().map(per_pod).filter(|usage| *usage > 0.0).collect();
        used.sort_unstable_by(f64::total_cmp);
        // The lower median: of two nodes the busier one must not set the limit.
        let most = used.get(used.len().saturating_sub(1) / 2)? * MOST_TIMES_THE_MEDIAN;
        let usage: f64 = self.0.iter().map(|on| per_pod(on).min(most) * on.pods).sum();
        Some(usage / self.0.iter().map(|on| on.pods).sum::<f64>())
    }
}
