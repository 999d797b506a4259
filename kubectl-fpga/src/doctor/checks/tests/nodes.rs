//! Faults of nodes, their collectors and their clocks.

use super::*;
use crate::doctor::checks::nodes;

#[test]
fn nodes_that_can_not_be_judged_are_found() {
    let check = "node states";
    only(&with_node(|node| node.state = State::Absent), Severity::Problem, check, "without a state: n1");
    only(
        &with_node(|node| node.state = State::Unreadable("x".into())),
        Severity::Problem,
        check,
        "can't be read: n1",
    );
    let unlabelled = with_node(|node| node.labelled = false);
    only(&unlabelled, Severity::Problem, check, "without the label");
    let mend = |facts: &Facts| nodes::states(facts).remove(0).mend;
    assert!(mend(&unlabelled).starts_with("kubectl label node"));
    let told = Collectors { labelling: Labelling::ByCollectors, ..mk_collectors(&["n1", "n2"]) };
    let told = Facts { collectors: Looked::Found(told), ..unlabelled };
    assert!(mend(&told).contains("collector.labelNode") && mend(&told).contains("and don't"));
    let no_board = |node: &mut Node| {
        node.state = State::Known(Box::new(NodeState { devices: Vec::new(), ..mk_state() }));
    };
    only(&with_node(no_board), Severity::Problem, check, "knows of no board: n1");
    let sick = |node: &mut Node| {
        let mut state = mk_state();
        state.devices[0].health = fpga_core::device::Health::Unhealthy;
        node.state = State::Known(Box::new(state));
    };
    only(&with_node(sick), Severity::Problem, check, "doesn't answer: n1");
    let cordoned = |node: &mut Node| {
        let mut state = mk_state();
        let cordons = format!(r#"{{"{}":{{"sinceMs":5}}}}"#, state.devices[0].id);
        state.cordon(&fpga_core::cordon::CordonedBoards::parse(&cordons).unwrap());
        node.state = State::Known(Box::new(state));
    };
    only(&with_node(cordoned), Severity::Note, check, "out of rotation: n1");
    let stale = |_: usize, replica: &mut Replica| {
        if let Looked::Found(nodes) = &mut replica.nodes {
            nodes[0].freshness = "stale".into();
        }
    };
    only(&with_replicas(stale), Severity::Problem, check, "silent for three heartbeats: n1");
    let left_out = LeftOut { recent: 2, names: 1, ..LeftOut::default() };
    let truncated =
        |node: &mut Node| node.state = State::Known(Box::new(NodeState { left_out, ..mk_state() }));
    only(&with_node(truncated), Severity::Note, check, "2 recent bitstreams, 1 name: n1");
    let none =
        Facts { nodes: Looked::Found(vec![Node { name: "x".into(), ..Node::default() }]), ..mk_facts() };
    only(&none, Severity::Warning, check, "no node has a board");
}

#[test]
fn labelled_nodes_without_a_collector_are_found() {
    let missing = Facts { collectors: Looked::Found(mk_collectors(&["n2"])), ..mk_facts() };
    only(&missing, Severity::Note, "collectors", "without a collector's pod: n1");
    let silent = Facts {
        replicas: with_replicas(|_, replica| {
            if let Looked::Found(nodes) = &mut replica.nodes {
                nodes[0].freshness = "absent".into();
            }
        })
        .replicas,
        ..missing
    };
    only(&silent, Severity::Problem, "collectors", "without a collector that is ready: n1");
}

#[test]
fn clocks_that_go_wrong_are_found() {
    only(
        &with_node(|node| node.written_at_ms = Some(940_000)),
        Severity::Warning,
        "clocks",
        "n1 (60 s ahead)",
    );
    only(
        &with_node(|node| node.written_at_ms = Some(1_100_000)),
        Severity::Warning,
        "clocks",
        "n1 (100 s behind)",
    );
}
