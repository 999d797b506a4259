//! Pods that had better be elsewhere, by the states of their nodes.

use crate::cluster::KnownNode;
use fpga_cluster::moves::Cause;
use fpga_core::device::Health;
use fpga_core::node_state::{Heartbeat, NodeState, controller};
use fpga_core::units::{Millis, MonotonicTime};
use fpga_registry_api::FpgaPod;
use std::collections::BTreeMap;

/// A pod that had better be elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'p> {
    /// The pod.
    pub pod: &'p FpgaPod,
    /// Why.
    pub cause: Cause,
}

/// Boards that are lost, by node and id, each with the moment at which that was seen first.
#[derive(Debug, Default)]
pub struct LostBoards(BTreeMap<(String, String), MonotonicTime>);

impl LostBoards {
    /// The pods that had better be elsewhere at the moment `now`, those that could not be prepared first. A board is lost
    /// for good if it has not come back within `grace`. A node without fresh state gives no cause: its collector may be
    /// lost, and not its boards.
    pub fn find<'p>(
        &mut self,
        pods: &'p [FpgaPod],
        nodes: &[KnownNode],
        grace: Millis,
        now: MonotonicTime,
    ) -> Vec<Found<'p>> {
        let states: BTreeMap<&str, &NodeState> =
            nodes.iter().filter_map(|node| Some((node.name.as_str(), node.fresh()?))).collect();
        let (mut not_prepared, mut without_board) = (Vec::new(), Vec::new());
        let mut lost = BTreeMap::new();
        for pod in pods.iter().filter(|pod| !pod.is_ending) {
            let Some(node) = &pod.node else { continue };
            let Some(state) = states.get(node.as_str()) else { continue };
            if is_refused(pod, state) {
                not_prepared.push(Found { pod, cause: Cause::NotPrepared });
                continue;
            }
            for board in pod.boards.iter().filter(|board| is_lost(board, state)) {
                let key = (node.clone(), board.clone());
                let since = self.0.get(&key).copied().unwrap_or(now);
                lost.insert(key, since);
                let since = now - since;
                let is_first = without_board.last().is_none_or(|last: &Found<'_>| last.pod != pod);
                if since >= grace && is_first {
                    let board = board.clone();
                    without_board.push(Found { pod, cause: Cause::BoardLost { board, since } });
                }
            }
        }
        self.0 = lost;
        not_prepared.append(&mut without_board);
        not_prepared
    }
}

/// Whether the node's plugin could not serve pods of the pod's controller, and has given this one no board.
fn is_refused(pod: &FpgaPod, state: &NodeState) -> bool {
    let (Some(plugin), Some(owner)) = (&state.plugin, &pod.controller) else { return false };
    let name = controller(&pod.namespace, &owner.uid);
    !pod.is_ready && pod.boards.is_empty() && plugin.report.kept_off.contains(&name)
}

/// Whether a board is missing or does not answer. While the node plugin is late, what it offers is not known.
fn is_lost(board: &str, state: &NodeState) -> bool {
    let Some(device) = state.devices.iter().find(|device| device.id == board) else { return true };
    let plugin_reports = state.plugin.as_ref().is_some_and(|plugin| plugin.heartbeat == Heartbeat::InTime);
    device.health == Health::Unhealthy || (plugin_reports && !state.offers(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::fixtures::{mk_device, mk_plugin, mk_state};
    use fpga_core::node_labels::NodeLabels;
    use fpga_registry_api::Controller;
    use std::sync::Arc;

    const GRACE: Millis = Millis(60_000);

    fn pod(name: &str, boards: &[&str], is_ready: bool) -> FpgaPod {
        let controller = Controller { kind: "ReplicaSet".into(), name: "rs".into(), uid: "rs-1".into() };
        FpgaPod {
            namespace: "shop".into(),
            name: name.into(),
            uid: name.into(),
            labels: BTreeMap::new(),
            node: Some("n".into()),
            controller: Some(controller),
            bitstreams: Vec::new(),
            boards: boards.iter().map(|board| (*board).to_owned()).collect(),
            is_ready,
            is_ending: false,
        }
    }

    fn node(state: NodeState) -> KnownNode {
        let (labels, state) = (NodeLabels::default(), Some(Arc::new(state)));
        KnownNode { name: "n".into(), labels, moved_off: None, state, age: Millis::ZERO }
    }

    /// A node with a board `dm0`.
    fn with_board(change: impl FnOnce(&mut NodeState)) -> KnownNode {
        let mut device = mk_device("intel", "a10", "1");
        device.id = "dm0".into();
        let plugin = Some(mk_plugin(&[("dm0", 1, 16)]));
        let mut state = NodeState { devices: vec![device], plugin, ..mk_state() };
        change(&mut state);
        node(state)
    }

    /// Whether the pods of a node with `boards` are to be moved after the grace.
    fn is_cause(pod: &FpgaPod, node: &KnownNode) -> Option<Cause> {
        let mut lost = LostBoards::default();
        let (pods, nodes) = (std::slice::from_ref(pod), std::slice::from_ref(node));
        lost.find(pods, nodes, GRACE, MonotonicTime(5));
        let found = lost.find(pods, nodes, GRACE, MonotonicTime(60_005));
        found.into_iter().next().map(|found| found.cause)
    }

    #[test]
    fn a_board_that_is_missing_or_does_not_answer_is_lost() {
        let holder = pod("p", &["dm0"], true);
        let lost = Some(Cause::BoardLost { board: "dm0".into(), since: GRACE });
        assert_eq!(is_cause(&holder, &with_board(|_| {})), None);
        assert_eq!(is_cause(&holder, &with_board(|state| state.devices.clear())), lost);
        let unhealthy = with_board(|state| state.devices[0].health = Health::Unhealthy);
        assert_eq!(is_cause(&holder, &unhealthy), lost);
        let not_offered = with_board(|state| state.plugin = Some(mk_plugin(&[])));
        assert_eq!(is_cause(&holder, &not_offered), lost);
        let late = with_board(|state| {
            let mut plugin = mk_plugin(&[]);
            plugin.heartbeat = Heartbeat::Late;
            state.plugin = Some(plugin);
        });
        assert_eq!(is_cause(&holder, &late), None, "what a late plugin offers is not known");
        let stale = KnownNode { age: Millis(u64::MAX), ..with_board(|state| state.devices.clear()) };
        assert_eq!(is_cause(&holder, &stale), None, "nothing is known");
        let ending = FpgaPod { is_ending: true, ..holder };
        assert_eq!(is_cause(&ending, &with_board(|state| state.devices.clear())), None);
    }

    #[test]
    fn a_board_has_its_grace_each_time_that_it_is_lost() {
        let pods = [pod("p", &["dm0", "dm1"], true)];
        let (there, gone) = ([with_board(|_| {})], [with_board(|state| state.devices.clear())]);
        let mut lost = LostBoards::default();
        let mut found =
            |nodes: &[KnownNode], now| lost.find(&pods[..1], nodes, GRACE, MonotonicTime(now)).len();
        assert_eq!(found(&gone, 0), 0);
        assert_eq!(found(&gone, 59_999), 0);
        assert_eq!(found(&gone, 60_000), 1, "one move, though both boards are lost");
        let one = [pod("p", &["dm0"], true)];
        let mut found = |nodes: &[KnownNode], now| lost.find(&one, nodes, GRACE, MonotonicTime(now)).len();
        assert_eq!(found(&there, 61_000), 0);
        assert_eq!(found(&gone, 62_000), 0);
        assert_eq!(found(&gone, 121_000), 0);
        assert_eq!(found(&gone, 122_000), 1);
    }

    #[test]
    fn a_pod_that_its_node_can_not_serve_is_found_at_once_and_its_siblings_are_not() {
        let refusing = with_board(|state| {
            let mut plugin = mk_plugin(&[("dm0", 1, 16)]);
            plugin.report.kept_off = [controller("shop", "rs-1")].into();
            state.plugin = Some(plugin);
        });
        assert_eq!(is_cause(&pod("p", &[], false), &refusing), Some(Cause::NotPrepared));
        assert_eq!(is_cause(&pod("p", &["dm0"], true), &refusing), None, "it has its board");
        let other = FpgaPod { namespace: "mill".into(), ..pod("p", &[], false) };
        assert_eq!(is_cause(&other, &refusing), None);
    }
}
