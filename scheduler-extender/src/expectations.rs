//! What pods that were just placed will add to their nodes, in memory: fed by the watch on pods and by our own decisions,
//! read by decisions (anti-herd). The rules are core's; here are the lock and what is counted.

use crate::index::{NodeIndex, Nodes};
use fpga_core::expected_load::{ArenaKey, Expected, ExpectedLoads, Kept, PlacedPod};
use fpga_core::signals::AskedKind;
use fpga_core::staleness::Received;
use fpga_core::units::{Millis, MonotonicTime};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

/// The pods that were seen bound and the decisions that wait to be.
#[derive(Debug, Default)]
pub struct Expectations {
    loads: RwLock<ExpectedLoads>,
    synced: AtomicBool,
    metrics: ExpectationMetrics,
}

/// What is counted of them.
#[derive(Debug, Default)]
pub struct ExpectationMetrics {
    pods: Gauge,
    assumed: Gauge,
    owners: Gauge,
    pod_usage: Gauge<f64, AtomicU64>,
    left_out: Counter,
    /// Failures of the watch on pods.
    pub watch_errors: Counter,
}

impl Expectations {
    /// None yet; their metrics are under `fpga_extender_`.
    pub fn register(registry: &mut Registry) -> Self {
        let all = Self::default();
        let registry = registry.sub_registry_with_prefix("fpga_extender");
        let gauges = [
            ("placed_pods", "FPGA pods known to be bound to a node", &all.metrics.pods),
            ("awaited_bindings", "Decisions that wait to be seen bound", &all.metrics.assumed),
            ("known_owners", "Owners whose pods' mean usage is known", &all.metrics.owners),
        ];
        for (name, help, gauge) in gauges {
            registry.register(name, help, gauge.clone());
        }
        let help = "Mean usage of a pod in a window, 0 while nothing is known";
        registry.register_with_unit("mean_pod_usage", help, Unit::Seconds, all.metrics.pod_usage.clone());
        let help = "Pods not expected to use anything: their node has too many";
        registry.register("left_out_pods", help, all.metrics.left_out.clone());
        registry.register(
            "pod_watch_errors",
            "Failures of the watch on pods",
            all.metrics.watch_errors.clone(),
        );
        all
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> &ExpectationMetrics {
        &self.metrics
    }

    /// Whether all pods of the cluster have been shown once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// A pod was seen bound, `elapsed` after it was.
    pub fn bound(&self, pod: &PlacedPod, elapsed: Millis, now: MonotonicTime) {
        if self.change(|loads| loads.bound(pod, elapsed, now)) == Kept::NoRoom {
            self.metrics.left_out.inc();
        }
    }

    /// A pod that waits for a node was seen.
    pub fn waits(&self, uid: &str, now: MonotonicTime) {
        self.change(|loads| loads.waits(uid, now));
    }

    /// A pod ended or was deleted.
    pub fn gone(&self, uid: &str) {
        self.change(|loads| loads.gone(uid));
    }

    /// A list of pods was shown to its end: who was not in it is gone.
    pub fn listed(&self, uids: &HashSet<String>) {
        self.change(|loads| loads.listed(uids));
        self.synced.store(true, Ordering::Release);
    }

    /// A pod that asks for boards of this kind was scored, and these are the best nodes for it.
    pub fn assume(&self, uid: &str, owner: Option<&str>, kind: AskedKind, best: &[&str], now: MonotonicTime) {
        self.change(|loads| loads.assume(uid, owner, kind, best, now));
    }

    /// What is expected of the boards of this kind on each of these nodes, of which the fresh ones have a state, for a
    /// decision about the pod `asking`; nothing at all if nothing is expected anywhere.
    pub fn on<'n>(
        &self,
        asking: &str,
        nodes: impl Iterator<Item = (&'n str, Option<(&'n ArenaKey, &'n Received)>)>,
        kind: &AskedKind,
        now: MonotonicTime,
    ) -> Vec<Expected> {
        let loads = self.loads.read().unwrap_or_else(PoisonError::into_inner);
        if loads.pods() == 0 && loads.assumed_pods() == 0 {
            return Vec::new();
        }
        let on = |(name, fresh): (&str, Option<(&ArenaKey, &Received)>)| {
            let on = |(key, received)| loads.on_keyed(key, name, asking, received, kind, now);
            fresh.map_or_else(Expected::default, on)
        };
        nodes.map(on).collect()
    }

    /// Learns from the nodes what pods use, and forgets what has passed. To be called every few seconds.
    pub fn learn(&self, index: &NodeIndex, now: MonotonicTime) {
        let learnt = {
            let nodes: &Nodes = &index.read();
            let loads = self.loads.read().unwrap_or_else(PoisonError::into_inner);
            loads.learnt(|name| nodes.get(name)?.facts.knowledge.fresh(now), now)
        };
        self.metrics.owners.set(count(learnt.owners()));
        self.metrics.pod_usage.set(learnt.cluster().unwrap_or_default() / 1e3);
        self.change(|loads| {
            loads.expect(&learnt);
            loads.expire_assumed(now);
        });
    }

    fn change<R>(&self, change: impl FnOnce(&mut ExpectedLoads) -> R) -> R {
        let mut loads = self.loads.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut loads);
        self.metrics.pods.set(count(loads.pods()));
        self.metrics.assumed.set(count(loads.assumed_pods()));
        result
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
