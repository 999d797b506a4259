//! Clusters with a single fault, or none.

mod advertised;
mod extender;
mod nodes;
mod scheduler;
mod streams;

use super::*;
use crate::doctor::facts::{
    Certificate, Collectors, FpgaPod, Labelling, Lease, ManagerSet, MemoryLimit, Metrics, Node, Policy,
    Reach, Replica, Right, SchedulerPod, State,
};
use crate::doctor::finding::Severity;
use crate::doctor::scheduler_config::{DEFAULT_SCHEDULER, SchedulerConfig};
use fpga_core::names::ACCELERATED_RESOURCE;
use fpga_core::node_state::{LeftOut, NodeState};
use serde_json::json;

const SHIPPED: &str = "kind: KubeSchedulerConfiguration
percentageOfNodesToScore: 10
extenders:
- urlPrefix: http://127.0.0.1:9461
  filterVerb: filter
  prioritizeVerb: prioritize
  preemptVerb: preempt
  weight: 10
  nodeCacheCapable: true
  httpTimeout: 1s
  managedResources:
  - name: fpga-scheduling.io/accelerated
    ignoredByScheduler: true
";

fn mk_state() -> NodeState {
    serde_json::from_value(json!({
        "boot": 1, "seq": 1, "heartbeatMs": 60_000, "measuredAtMs": 1_000_000, "windowMs": 300_000, "usageMs": 0,
        "reconfigurationMs": 0, "devices": [{"id": "dm0", "slots": 4, "healthy": true}], "window": {"bucketMs": 1},
    }))
    .unwrap()
}

fn mk_node(name: &str) -> Node {
    let state = State::Known(Box::new(mk_state()));
    let (advertised, taints) = (0, Vec::new());
    Node { name: name.into(), labelled: true, advertised, taints, state, written_at_ms: Some(1_002_000) }
}

fn mk_replica(name: &str) -> Replica {
    let view = json!([{"name": "n1", "freshness": "fresh", "source": "stream"},
                      {"name": "n2", "freshness": "fresh", "source": "stream"}]);
    Replica {
        name: name.into(),
        ready: true,
        config: Looked::Found(mk_config("1-2-2", "on")),
        nodes: Looked::Found(serde_json::from_value(view).unwrap()),
        metrics: Looked::Found(Metrics::default()),
        version: Some(env!("CARGO_PKG_VERSION").into()),
    }
}

fn mk_config(weights: &str, anti_herd: &str) -> fpga_extender_api::ConfigView {
    let weights: Vec<f64> = weights.split('-').map(|weight| weight.parse().unwrap()).collect();
    serde_json::from_value(json!({"policy": {
        "weights": {"locality": weights[0], "usage": weights[1], "reconfiguration": weights[2]},
        "max_score": 10, "anti_herd": anti_herd, "schedulerWeight": 10,
    }}))
    .unwrap()
}

/// An arbitrary time, seconds since the epoch.
const NOW: i64 = 1_800_000_000;

fn mk_collectors(ready_on: &[&str]) -> Collectors {
    let ready_on = ready_on.iter().map(|node| (*node).to_owned()).collect();
    Collectors { ready_on, labelling: Labelling::ByPeople }
}

/// A pod without fault.
fn mk_pod(name: &str) -> FpgaPod {
    let scheduler = DEFAULT_SCHEDULER.to_owned();
    FpgaPod {
        name: name.into(),
        scheduler,
        pending: false,
        resources: [ACCELERATED_RESOURCE.to_owned()].into(),
        by_hand: false,
        at_init: false,
        narrowed: true,
    }
}

fn mk_managers() -> ManagerSet {
    ManagerSet { name: "fpga-device-manager-a10".into(), wanted: 2, ready: 2, memory_limit: MemoryLimit::Set }
}

/// A cluster without fault whose nodes advertise their boards, with a kube-scheduler of our own.
fn mk_advertising() -> Facts {
    let advertising = |name: &str| Node { advertised: 16, ..mk_node(name) };
    Facts {
        nodes: Looked::Found(vec![advertising("n1"), advertising("n2")]),
        plugins: Looked::Found(vec!["n1".into(), "n2".into()]),
        lease: Looked::Found(Some(Lease { holder: Some("a".into()), renewed: NOW - 2, duration_s: 15 })),
        ..with_config("ignoredByScheduler: true", "ignoredByScheduler: false")
    }
}

/// A cluster without fault.
fn mk_facts() -> Facts {
    let pod = mk_pod("d/p");
    let right = Right {
        who: "extender".into(),
        verb: "list",
        resource: "nodes",
        allowed: true,
        needed_for: "It knows nothing.",
    };
    Facts {
        now: NOW,
        kubernetes_minor: Looked::Found(34),
        config: Looked::Found(("file".into(), SchedulerConfig::parse(SHIPPED).unwrap())),
        own_schedulers: Vec::new(),
        scheduler_pod: Looked::Found(SchedulerPod {
            name: "kube-scheduler-cp".into(),
            host_network: true,
            dns_policy: "ClusterFirst".into(),
            command: vec!["kube-scheduler".into(), "--config=/x".into()],
        }),
        reach: Looked::Found(Reach::Answers),
        replicas: Looked::Found(vec![mk_replica("a"), mk_replica("b")]),
        nodes: Looked::Found(vec![mk_node("n1"), mk_node("n2")]),
        pods: Looked::Found(vec![pod]),
        collectors: Looked::Found(mk_collectors(&["n1", "n2"])),
        plugins: Looked::Found(Vec::new()),
        managers: Looked::Found(vec![mk_managers()]),
        policies: Looked::Found(vec![Policy { name: "ValidatingAdmissionPolicy a".into(), is_bound: true }]),
        lease: Looked::Found(None),
        rights: Looked::Found(vec![right]),
    }
}

fn with_config(from: &str, to: &str) -> Facts {
    assert!(SHIPPED.contains(from));
    let config = SchedulerConfig::parse(&SHIPPED.replace(from, to)).unwrap();
    Facts { config: Looked::Found(("file".into(), config)), ..mk_facts() }
}

fn with_replicas(change: impl Fn(usize, &mut Replica)) -> Facts {
    let mut replicas = vec![mk_replica("a"), mk_replica("b")];
    replicas.iter_mut().enumerate().for_each(|(place, replica)| change(place, replica));
    Facts { replicas: Looked::Found(replicas), ..mk_facts() }
}

fn with_node(change: impl Fn(&mut Node)) -> Facts {
    let mut bad = mk_node("n1");
    change(&mut bad);
    Facts { nodes: Looked::Found(vec![bad, mk_node("n2")]), ..mk_facts() }
}

/// Asserts that `check` has exactly one finding, of this severity, that contains `what` and tells how to mend it; and
/// that no other check has a finding above [`Severity::Ok`].
#[track_caller]
fn only(facts: &Facts, severity: Severity, check: &str, what: &str) {
    let bad: Vec<Finding> =
        run(facts).into_iter().filter(|finding| finding.severity > Severity::Ok).collect();
    let [finding] = bad.as_slice() else { panic!("not one finding: {bad:#?}") };
    assert_eq!((finding.severity, finding.check), (severity, check), "{finding:#?}");
    assert!(finding.what.contains(what), "{finding:#?} has no {what}");
    assert!(!finding.why.is_empty());
    assert!(!finding.mend.is_empty() || severity < Severity::Warning, "{finding:#?}");
}

#[test]
fn where_all_is_well_nothing_is_found() {
    for facts in [mk_facts(), mk_advertising()] {
        let findings = run(&facts);
        assert!(findings.iter().all(|finding| finding.severity == Severity::Ok), "{findings:#?}");
        assert_eq!(findings.len(), ALL.len() + 1, "every check says that it looked: {findings:#?}");
    }
}

#[test]
fn rights_that_are_missing_are_found() {
    let right = Right {
        who: "collector".into(),
        verb: "patch",
        resource: "nodes",
        allowed: false,
        needed_for: "No node state is ever published.",
    };
    only(
        &Facts { rights: Looked::Found(vec![right]), ..mk_facts() },
        Severity::Problem,
        "rights",
        "may not patch nodes",
    );
    only(
        &Facts { rights: Looked::Hidden("forbidden".into()), ..mk_facts() },
        Severity::Unknown,
        "rights",
        "could not",
    );
}
