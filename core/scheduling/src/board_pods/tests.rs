use super::*;
use crate::fixtures::{mk_board, mk_plugin, mk_state};

const ASKING: Asking<'_> = Asking { uid: "asking", priority: 10 };

/// A pod with one container for each of these boards.
pub(crate) fn mk_pod(uid: &str, priority: i32, boards: &[&str]) -> BoardPod {
    let containers = u32::try_from(boards.len().max(1)).unwrap();
    BoardPod {
        uid: uid.to_owned(),
        node: "n".to_owned(),
        place: Place::Bound,
        life: Life::Stays,
        priority,
        since: None,
        boards: boards.iter().map(|board| (*board).to_owned()).collect(),
        wanted: WantedInstances {
            containers,
            by_resource: [("fpga-scheduling.io/accelerated".to_owned(), containers)].into(),
        },
        requirement: Requirement::default(),
        terms: PodTerms::default(),
    }
}

/// A node with these boards: id, used instances and limit.
pub(crate) fn mk_boards(boards: &[(&str, u32, u32)]) -> NodeState {
    let devices = boards.iter().map(|(id, ..)| mk_board(id, &[])).collect();
    NodeState { devices, plugin: Some(mk_plugin(boards)), ..mk_state() }
}

fn left(state: &NodeState, pods: &[BoardPod], board: &str, leave: &[&str]) -> u32 {
    let pods: Vec<&BoardPod> = pods.iter().collect();
    let node = Occupancy::new(state, NodePods::All(&pods), ASKING);
    node.left(board, &|pod| leave.contains(&pod.uid.as_str()))
}

#[test]
fn a_pod_that_leaves_frees_its_boards_and_no_others() {
    let state = mk_boards(&[("a", 2, 2), ("b", 2, 2)]);
    let pods = [mk_pod("1", 0, &["a"]), mk_pod("2", 0, &["a", "b"]), mk_pod("3", 0, &["b"])];
    assert_eq!((left(&state, &pods, "a", &[]), left(&state, &pods, "b", &[])), (0, 0));
    assert_eq!((left(&state, &pods, "a", &["1"]), left(&state, &pods, "b", &["1"])), (1, 0));
    assert_eq!((left(&state, &pods, "a", &["2"]), left(&state, &pods, "b", &["2"])), (1, 1));
    assert_eq!(left(&state, &pods, "another", &["1"]), 0);
}

#[test]
fn a_pod_with_two_containers_on_one_board_frees_both() {
    let state = mk_boards(&[("a", 3, 2)]);
    let two = WantedInstances { containers: 2, by_resource: [("r".to_owned(), 2)].into() };
    let pods = [BoardPod { wanted: two, ..mk_pod("1", 0, &["a"]) }, mk_pod("2", 0, &["a"])];
    assert_eq!((left(&state, &pods, "a", &["1"]), left(&state, &pods, "a", &["2"])), (1, 0));
}

#[test]
fn a_report_that_still_counts_a_pod_that_is_gone_fills_no_board() {
    let state = mk_boards(&[("a", 2, 2)]);
    assert_eq!(left(&state, &[mk_pod("1", 0, &["a"])], "a", &[]), 1);
    // The boards of a pod that starts are not known yet: it may have any.
    assert_eq!(left(&state, &[mk_pod("1", 0, &["a"]), mk_pod("2", 0, &[])], "a", &[]), 0);
    assert_eq!(left(&state, &[mk_pod("1", 0, &["a"]), mk_pod("2", 0, &[])], "a", &["2"]), 1);
    let unknown = Occupancy::new(&state, NodePods::Unknown, ASKING);
    assert_eq!(unknown.left("a", &|_| false), 0, "pods that were not listed may be there");
}

#[test]
fn a_place_that_kube_scheduler_keeps_for_a_pod_is_not_given_to_one_of_lower_priority() {
    let state = mk_boards(&[("a", 0, 1), ("b", 0, 1)]);
    let nominated = |uid, priority| {
        let requirement = Requirement { slots: 1, ..Requirement::default() };
        BoardPod { place: Place::Nominated, requirement, ..mk_pod(uid, priority, &[]) }
    };
    assert_eq!(left(&state, &[nominated("1", 10)], "a", &[]), 0);
    assert_eq!(left(&state, &[nominated("1", 10)], "b", &[]), 1, "it needs one board only");
    assert_eq!(left(&state, &[nominated("1", 9)], "a", &[]), 1);
    assert_eq!(left(&state, &[nominated("asking", 10)], "a", &[]), 1, "it is its own place");
}

#[test]
fn a_board_off_which_pods_are_moved_takes_no_new_ones_whoever_leaves() {
    let mut state = mk_boards(&[("a", 1, 1)]);
    let plugin = state.plugin.as_mut().unwrap();
    plugin.report.wanted.insert("a".to_owned(), "another".to_owned());
    let pods = [mk_pod("1", 0, &["a"])];
    assert_eq!(left(&state, &pods, "a", &["1"]), 0);
    let pods: Vec<&BoardPod> = pods.iter().collect();
    assert_eq!(Occupancy::new(&state, NodePods::All(&pods), ASKING).without(&|_| true), None);
}

#[test]
fn without_a_node_plugin_every_board_has_instances_left() {
    let state = NodeState { plugin: None, ..mk_boards(&[("a", 0, 0)]) };
    let node = Occupancy::new(&state, NodePods::All(&[]), ASKING);
    assert_eq!((node.left("a", &|_| false), node.without(&|_| true)), (u32::MAX, None));
}

#[test]
fn the_state_is_copied_only_where_a_number_changes() {
    let state = mk_boards(&[("a", 1, 1), ("b", 0, 1)]);
    let pod = mk_pod("1", 0, &["a"]);
    let pods = [&pod];
    let node = Occupancy::new(&state, NodePods::All(&pods), ASKING);
    assert_eq!(node.without(&|_| false), None);
    let without = node.without(&|_| true).unwrap();
    assert_eq!(without.plugin, mk_boards(&[("a", 0, 1), ("b", 0, 1)]).plugin);
}
