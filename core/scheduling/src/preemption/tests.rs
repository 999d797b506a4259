use super::*;
use crate::board_pods::NodePods;
use crate::board_pods::tests::{mk_boards, mk_pod};
use crate::node_state::NodeState;
use crate::units::WallTime;

const ASKING: Asking<'_> = Asking { uid: "asking", priority: 10 };

/// The victims that are added, and the proposed ones that are spared.
fn chosen(
    asked: &Requirement,
    state: &NodeState,
    pods: &[BoardPod],
    proposed: &[&str],
) -> Option<(Vec<String>, Vec<String>)> {
    let pods: Vec<&BoardPod> = pods.iter().collect();
    let node = Occupancy::new(state, NodePods::All(&pods), ASKING);
    let found = victims(asked, &node, &|pod| proposed.contains(&pod.uid.as_str()), ASKING)?;
    let owned = |uids: &mut dyn Iterator<Item = &&str>| uids.map(|uid| (*uid).to_owned()).collect();
    Some((owned(&mut found.added.iter()), owned(&mut found.spared.iter())))
}

fn of_board(kind: &str) -> Requirement {
    Requirement { board: Some(kind.to_owned()), ..Requirement::default() }
}

fn names(added: &[&str], spared: &[&str]) -> Option<(Vec<String>, Vec<String>)> {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Some((owned(added), owned(spared)))
}

/// Two boards of different kinds, each full: a10 with the pod 1, s10 with the pod 2.
fn two_kinds() -> (NodeState, [BoardPod; 2]) {
    let mut state = mk_boards(&[("a", 1, 1), ("s", 1, 1)]);
    "s10".clone_into(&mut state.devices[1].board);
    (state, [mk_pod("1", 0, &["a"]), mk_pod("2", 0, &["s"])])
}

#[test]
fn victims_that_suffice_are_kept() {
    let (state, pods) = two_kinds();
    assert_eq!(chosen(&of_board("a10"), &state, &pods, &["1"]), names(&[], &[]));
    assert_eq!(chosen(&Requirement::default(), &state, &pods, &["2"]), names(&[], &[]));
}

#[test]
fn a_victim_with_the_wrong_board_is_exchanged_for_one_with_the_right_board() {
    let (state, pods) = two_kinds();
    assert_eq!(chosen(&of_board("a10"), &state, &pods, &["2"]), names(&["1"], &["2"]));
    let important = [BoardPod { priority: 10, ..mk_pod("1", 0, &["a"]) }, mk_pod("2", 0, &["s"])];
    assert_eq!(chosen(&of_board("a10"), &state, &important, &["2"]), None, "it is as important");
    assert_eq!(chosen(&of_board("u250"), &state, &pods, &["1", "2"]), None);
}

#[test]
fn a_proposed_victim_stays_only_where_as_many_instances_of_its_resource_are_freed() {
    let (state, pods) = two_kinds();
    let mut pods = pods.to_vec();
    pods[1].wanted.by_resource = [("fpga-scheduling.io/intel".to_owned(), 1)].into();
    assert_eq!(chosen(&of_board("a10"), &state, &pods, &["2"]), names(&["1"], &[]));
}

#[test]
fn several_boards_need_victims_on_several_boards() {
    let state = mk_boards(&[("a", 2, 2), ("b", 2, 2)]);
    let pods = [
        mk_pod("1", 0, &["a"]),
        mk_pod("2", 1, &["a"]),
        BoardPod { since: Some(WallTime(1)), ..mk_pod("3", 0, &["b"]) },
        BoardPod { since: Some(WallTime(2)), ..mk_pod("4", 0, &["b"]) },
    ];
    let two = Requirement { boards: 2, ..Requirement::default() };
    // Of the pods of b the one that came last goes.
    assert_eq!(chosen(&two, &state, &pods, &["1", "2"]), names(&["4"], &["2"]));
    assert_eq!(chosen(&two, &state, &pods, &[]), names(&["1", "4"], &[]));
    assert_eq!(chosen(&two, &state, &pods, &["1", "3"]), names(&[], &[]));
    let three = Requirement { boards: 3, ..Requirement::default() };
    assert_eq!(chosen(&three, &state, &pods, &["1", "3"]), None);
}

#[test]
fn a_pod_with_both_boards_is_enough() {
    let state = mk_boards(&[("a", 1, 1), ("b", 1, 1)]);
    let pods = [mk_pod("1", 0, &["a", "b"])];
    let two = Requirement { boards: 2, ..Requirement::default() };
    assert_eq!(chosen(&two, &state, &pods, &[]), names(&["1"], &[]));
}
