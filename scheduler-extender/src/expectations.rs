//! The usage that is expected of pods placed a moment ago (anti-herd), in memory: written by the watch on pods and by
//! the extender's decisions, read by decisions. The rules are in core; this module adds the lock and the metrics.

use crate::index::{NodeIndex, Nodes};
use fpga_core::expected_load::{ArenaKey, Expected, ExpectedLoads, Kept, PlacedPod};
use fpga_core::node_facts::KnownNode;
use fpga_core::signals::AskedKind;
use fpga_core::units::{Millis, MonotonicTime};
use parking_lot::RwLock;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The expected loads of pods that were seen bound and of decisions whose binding has not been seen.
#[derive(Debug, Default)]
pub struct Expectations {
    loads: RwLock<ExpectedLoads>,
    synced: AtomicBool,
    metrics: ExpectationMetrics,
}

/// The metrics of the expected loads.
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
    /// No expectations; registers their metrics under `fpga_extender_`.
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

    /// The metrics.
    #[must_use]
    pub fn metrics(&self) -> &ExpectationMetrics {
        &self.metrics
    }

    /// Whether all pods of the cluster have been listed once.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// The watch has seen a pod that was bound `elapsed` ago.
    pub fn bound(&self, pod: &PlacedPod, elapsed: Millis, now: MonotonicTime) {
        if self.change(|loads| loads.bound(pod, elapsed, now)) == Kept::NoRoom {
            self.metrics.left_out.inc();
        }
    }

    /// The watch has seen a pod that waits for a node.
    pub fn waits(&self, uid: &str, now: MonotonicTime) {
        self.change(|loads| loads.waits(uid, now));
    }

    /// A pod has ended or was deleted.
    pub fn gone(&self, uid: &str) {
        self.change(|loads| loads.gone(uid));
    }

    /// Forgets the pods that are not in `uids`, which come from a complete list. From then on the expectations are
    /// synced.
    pub fn listed(&self, uids: &HashSet<String>) {
        self.change(|loads| loads.listed(uids));
        self.synced.store(true, Ordering::Release);
    }

    /// A pod that asks for boards of `kind` was scored, and `best` are the nodes with the greatest score.
    pub fn assume(&self, uid: &str, owner: Option<&str>, kind: AskedKind, best: &[&str], now: MonotonicTime) {
        self.change(|loads| loads.assume(uid, owner, kind, best, now));
    }

    /// As [`ExpectedLoads::on_nodes`].
    pub fn on<'n>(
        &self,
        asking: &str,
        nodes: impl Iterator<Item = Option<(&'n str, &'n ArenaKey, KnownNode<'n>)>>,
        kind: &AskedKind,
        now: MonotonicTime,
    ) -> Vec<Expected> {
        self.loads.read().on_nodes(asking, nodes, kind, now)
    }

    /// Learns from the nodes' states what pods use, and forgets expired decisions. To be called every few seconds.
    pub fn learn(&self, index: &NodeIndex, now: MonotonicTime) {
        let learnt = {
            let nodes: &Nodes = &index.read();
            let loads = self.loads.read();
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
        let mut loads = self.loads.write();
        let result = change(&mut loads);
        self.metrics.pods.set(count(loads.pods()));
        self.metrics.assumed.set(count(loads.assumed_pods()));
        result
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
