use super::*;
use fpga_board::reuse::published::ReuseLog;
use fpga_core::bitstream::BitstreamId;
use fpga_core::fixtures::{mk_asked, mk_device, mk_plugin, mk_state};
use fpga_core::node_labels::NodeLabels;
use fpga_core::node_state::controller;
use fpga_core::node_terms::{NodeTerms, PodTerms};
use fpga_core::units::MonotonicTime;
use fpga_registry_api::{Controller, node_terms, pod_terms};
use serde_json::{Value, json};
use std::sync::Arc;

const NOW: WallTime = WallTime(1_790_000_000_000);

fn pod(name: &str, node: &str, bitstream: &str) -> FpgaPod {
    let controller = Controller { kind: "ReplicaSet".into(), name: name.into(), uid: format!("rs-{name}") };
    FpgaPod {
        namespace: "shop".into(),
        name: name.into(),
        uid: name.into(),
        labels: BTreeMap::new(),
        node: Some(node.into()),
        terms: PodTerms::default(),
        controller: Some(controller),
        requirement: mk_asked(&[bitstream]),
        boards: vec!["dm0".into()],
        is_ready: true,
        is_ending: false,
        new_before_old: false,
    }
}

/// A node with a board `dm0` of two slots.
fn node(name: &str) -> KnownNode {
    let mut device = mk_device("intel", "a10", "1");
    (device.id, device.slots) = ("dm0".into(), 2);
    let plugin = Some(mk_plugin(&[("dm0", 1, 16)]));
    let state = Some(Arc::new(NodeState { devices: vec![device], plugin, ..mk_state() }));
    let (labels, terms) = (NodeLabels::default(), NodeTerms::default());
    KnownNode { name: name.into(), labels, terms, moved_off: None, state, age: Millis(5) }
}

/// What a node publishes whose bitstreams are used once a second.
fn used(bitstreams: &[&str], times: u64) -> NodeReuse {
    let mut log = ReuseLog::default();
    for time in 0..times {
        for bitstream in bitstreams {
            log.used("dm0", &BitstreamId::Name((*bitstream).into()), None, MonotonicTime(time * 1_000));
        }
    }
    NodeReuse::parse(&log.text(MonotonicTime(times * 1_000))).unwrap()
}

/// Makes a test bed differ.
type Change = fn(&mut Bed);

struct Bed {
    pods: Vec<FpgaPod>,
    nodes: Vec<KnownNode>,
    reuse: BTreeMap<String, NodeReuse>,
}

impl Bed {
    /// Three functions on the two slots of `n1`, none on `n2`.
    fn crowded() -> Self {
        Self {
            pods: ["a", "b", "c"].map(|name| pod(name, "n1", name)).into(),
            nodes: vec![node("n1"), node("n2")],
            reuse: [("n1".into(), used(&["a", "b", "c"], 60)), ("n2".into(), used(&[], 0))].into(),
        }
    }

    fn found(&self, least_per_hour: u32) -> Vec<(String, SavedColdStarts)> {
        let library = Library::default();
        let found = find(&self.pods, &self.nodes, &self.reuse, &library, least_per_hour, NOW);
        let saved = found.into_iter().map(|found| match found.cause {
            Cause::ColdStarts(saved) => (found.pod.name.clone(), saved),
            other => panic!("{other}"),
        });
        saved.collect()
    }

    /// The second node is this object.
    fn set_node(&mut self, node: Value) {
        self.nodes[1].terms = node_terms(&serde_json::from_value(node).unwrap());
    }

    /// All pods have these fields in their specification.
    fn set_pods(&mut self, spec: &Value) {
        let read = |field: &str| spec.get(field).cloned();
        let tolerations = read("tolerations").map(|value| serde_json::from_value(value).unwrap());
        let selector = read("nodeSelector").map(|value| serde_json::from_value(value).unwrap());
        let affinity = read("affinity").map(|value| serde_json::from_value(value).unwrap());
        let terms = pod_terms(tolerations.as_ref(), selector.as_ref(), affinity.as_ref());
        self.pods.iter_mut().for_each(|pod| pod.terms = terms.clone());
    }

    fn change_state(&mut self, node: usize, change: impl FnOnce(&mut NodeState)) {
        let mut state = NodeState::clone(self.nodes[node].state.as_ref().unwrap());
        change(&mut state);
        self.nodes[node].state = Some(Arc::new(state));
    }
}

#[test]
fn one_pod_of_a_crowded_board_had_better_be_where_there_is_room() {
    let found = Bed::crowded().found(60);
    let [(_, saved)] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!((saved.board.as_str(), saved.best.as_str()), ("dm0", "dm0 of n2"));
    assert!(saved.saved > 1_000 && saved.saved <= saved.per_hour, "{saved:?}");
    assert_eq!(saved.saved, saved.saved_at_best);
    assert_eq!(Bed::crowded().found(saved.saved + 1), [], "it is not worth as much");
}

/// A node with a taint of this effect.
fn tainted(effect: &str) -> Value {
    json!({"spec": {"taints": [{"key": "fpga", "effect": effect}]}})
}

/// A pod that must not be on the node of this name.
fn not_on(node: &str) -> Value {
    let rule = json!({"key": "metadata.name", "operator": "NotIn", "values": [node]});
    let terms = json!({"nodeSelectorTerms": [{"matchFields": [rule]}]});
    json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}})
}

#[test]
fn a_board_that_would_not_take_the_pod_is_no_place_to_go() {
    let refusals: [(&str, Change); 16] = [
        ("publishes nothing", |bed| drop(bed.reuse.remove("n2"))),
        ("has no fresh state", |bed| bed.nodes[1].age = Millis(u64::MAX)),
        ("is of another kind", |bed| bed.change_state(1, |state| state.devices[0].board = "s10".into())),
        ("is not healthy", |bed| bed.change_state(1, |state| state.devices[0].health = Health::Unhealthy)),
        ("is not offered", |bed| bed.change_state(1, |state| state.plugin = Some(mk_plugin(&[])))),
        ("is full", |bed| {
            bed.change_state(1, |state| state.plugin = Some(mk_plugin(&[("dm0", 16, 16)])));
        }),
        ("has uses that had no room", |bed| {
            let text = r#"{"v":1,"boards":{"dm0":{"used":[],"leftOut":1}}}"#;
            bed.reuse.insert("n2".into(), NodeReuse::parse(text).unwrap());
        }),
        ("keeps the workloads off", |bed| {
            let marks = ["a", "b", "c"].map(|name| format!(r#""shop/rs-{name}":{}"#, NOW.0 + 60_000));
            bed.nodes[1].moved_off = Some(format!("{{{}}}", marks.join(",")));
        }),
        ("has a plugin that is late", |bed| {
            bed.change_state(1, |state| state.plugin.as_mut().unwrap().heartbeat = Heartbeat::Late);
        }),
        ("has a plugin that can't serve the workloads", |bed| {
            let kept_off = ["a", "b", "c"].map(|name| controller("shop", &format!("rs-{name}"))).into();
            bed.change_state(1, |state| state.plugin.as_mut().unwrap().report.kept_off = kept_off);
        }),
        ("is on a cordoned node", |bed| bed.set_node(json!({"spec": {"unschedulable": true}}))),
        ("is on a node that is not Ready", |bed| {
            bed.set_node(json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}));
        }),
        ("is on a node with a taint", |bed| bed.set_node(tainted("NoSchedule"))),
        ("is on a node that the pods would leave again", |bed| {
            bed.set_node(tainted("NoExecute"));
            bed.set_pods(&json!({"tolerations": [{"operator": "Exists", "tolerationSeconds": 300}]}));
        }),
        ("is on a node that the pods don't select", |bed| {
            bed.set_pods(&json!({"nodeSelector": {"zone": "a"}}));
        }),
        ("is on a node that the pods' affinity excludes", |bed| bed.set_pods(&not_on("n2"))),
    ];
    for (what, refuse) in refusals {
        let mut bed = Bed::crowded();
        refuse(&mut bed);
        assert_eq!(bed.found(60), [], "a board that {what}");
    }
    let places: [(&str, Change); 3] = [
        ("with a taint that the pods tolerate", |bed| {
            bed.set_node(tainted("NoSchedule"));
            bed.set_pods(&json!({"tolerations": [{"key": "fpga", "operator": "Exists"}]}));
        }),
        ("that the pods select", |bed| {
            bed.set_node(json!({"metadata": {"labels": {"zone": "a"}}}));
            bed.set_pods(&json!({"nodeSelector": {"zone": "a"}}));
        }),
        ("that the pods' affinity does not exclude", |bed| bed.set_pods(&not_on("n3"))),
    ];
    for (what, change) in places {
        let mut bed = Bed::crowded();
        change(&mut bed);
        assert_eq!(bed.found(60).len(), 1, "a node {what}");
    }
}

#[test]
fn pods_whose_uses_are_not_known_to_be_their_own_stay() {
    let changes: [(&str, Change); 4] = [
        ("of shared bitstreams", |bed| {
            let siblings: Vec<FpgaPod> =
                bed.pods.iter().map(|one| FpgaPod { uid: format!("{}-2", one.uid), ..one.clone() }).collect();
            bed.pods.extend(siblings);
        }),
        ("seen too briefly", |bed| drop(bed.reuse.insert("n1".into(), used(&["a", "b", "c"], 10)))),
        ("with several boards", |bed| bed.pods.iter_mut().for_each(|pod| pod.boards.push("dm1".into()))),
        ("that are not Ready", |bed| bed.pods.iter_mut().for_each(|pod| pod.is_ready = false)),
    ];
    for (what, change) in changes {
        let mut bed = Bed::crowded();
        change(&mut bed);
        assert_eq!(bed.found(60), [], "pods {what}");
    }
}

#[test]
fn a_bitstream_whose_pod_has_gone_crowds_no_board() {
    let mut bed = Bed::crowded();
    bed.pods.retain(|pod| pod.name != "c");
    assert!(!bed.found(60).is_empty(), "it was used a moment ago, by whomever");
    bed.nodes[0].age = Millis::from_secs(GAPS_UNTIL_LEFT + 1);
    assert_eq!(bed.found(60), []);
}

#[test]
fn where_boards_are_wired_by_hand_a_pod_has_the_only_board_of_its_node() {
    let mut bed = Bed::crowded();
    bed.pods.iter_mut().for_each(|pod| pod.boards.clear());
    assert_eq!(bed.found(60), [], "the plugin has given none");
    (0..2).for_each(|node| bed.change_state(node, |state| state.plugin = None));
    assert_eq!(bed.found(60).len(), 1);
}
