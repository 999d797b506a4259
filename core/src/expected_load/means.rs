//! What a pod uses in a window, learnt from those that have been there for one.
//!
//! A node's usage is split evenly over its pods, each by the time that it was there. A mean of nothing says nothing: an
//! idle function's next pod may be busy.

use super::Bound;
use crate::units::Millis;
use std::collections::HashMap;
use std::sync::Arc;

/// Most owners whose mean is kept; pods of further ones are expected to be like the cluster's.
pub const MAX_OWNERS: usize = 10_000;

/// Mean usage per pod and window, in milliseconds.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Means {
    owners: HashMap<Arc<str>, f64>,
    cluster: Option<f64>,
}

#[derive(Debug, Default)]
struct Sum {
    usage: f64,
    pods: f64,
}

impl Means {
    /// Of one owner's pods, else of the cluster's, else nothing.
    #[must_use]
    pub fn of(&self, owner: Option<&str>) -> Option<f64> {
        owner.and_then(|owner| self.owners.get(owner).copied()).or(self.cluster)
    }

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

    /// The owner's UID; one that is known is not kept twice.
    pub(super) fn owner(&self, uid: &str) -> Arc<str> {
        self.owners.get_key_value(uid).map_or_else(|| uid.into(), |(uid, _)| Arc::clone(uid))
    }

    /// From the pods of nodes and the nodes' usage and window.
    pub(super) fn of_nodes<'n>(
        nodes: impl Iterator<Item = (&'n Vec<Bound>, (Millis, Millis))>,
        now: Millis,
    ) -> Self {
        let mut owners: HashMap<&Arc<str>, Sum> = HashMap::new();
        let mut cluster = Sum::default();
        for (pods, (usage, window)) in nodes {
            // The share of the window that each was there for.
            let there = |pod: &Bound| pod.elapsed(now).min(window).0 as f64 / window.0.max(1) as f64;
            let settled = pods.iter().take_while(|pod| pod.elapsed(now) >= window);
            let per_pod = usage.0 as f64 / pods.iter().map(there).sum::<f64>().max(1.0);
            for pod in settled {
                cluster.add(per_pod);
                let Some(owner) = &pod.owner else { continue };
                if owners.len() < MAX_OWNERS || owners.contains_key(owner) {
                    owners.entry(owner).or_default().add(per_pod);
                }
            }
        }
        let known = |(owner, sum): (&Arc<str>, Sum)| Some((Arc::clone(owner), sum.mean()?));
        Self { owners: owners.into_iter().filter_map(known).collect(), cluster: cluster.mean() }
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
