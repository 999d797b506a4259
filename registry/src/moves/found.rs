//! Pods that had better be elsewhere, by the states of their nodes.

use super::places;
use crate::cluster::KnownNode;
use fpga_cluster::moves::Cause;
use fpga_core::device::Health;
use fpga_core::node_state::{Heartbeat, NodeState, controller, waiting_pod};
use fpga_core::redistribution::FreeTime;
use fpga_core::units::{Millis, Moment, MonotonicTime, WallTime};
use fpga_registry_api::FpgaPod;
use std::cell::LazyCell;
use std::collections::{BTreeMap, BTreeSet};

/// A pod that had better be elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found<'p> {
    /// The pod.
    pub pod: &'p FpgaPod,
    /// Why.
    pub cause: Cause,
}

/// Which pods are judged in an interval: a page at a time, in turn, so that pods that can't move keep no later one from it.
#[derive(Debug, Default)]
pub struct Page {
    /// UID of the last pod of the page before.
    last: String,
}

impl Page {
    /// The next `most` of the pods that were found, in the order of their UIDs; the first one follows the last one.
    pub fn next<'p>(&mut self, mut found: Vec<Found<'p>>, most: usize) -> Vec<Found<'p>> {
        if found.len() <= most {
            return found;
        }
        found.sort_by(|one, other| one.pod.uid.cmp(&other.pod.uid));
        let begin = found.partition_point(|found| found.pod.uid <= self.last) % found.len();
        found.rotate_left(begin);
        found.truncate(most);
        self.last = found.last().map(|found| found.pod.uid.clone()).unwrap_or_default();
        found
    }
}

/// Boards that are lost, by node and id, each with the moment at which that was seen first.
#[derive(Debug, Default)]
pub struct LostBoards(BTreeMap<(String, String), MonotonicTime>);

impl LostBoards {
    /// The pods that had better be elsewhere at the moment `at`, those that could not be prepared first. A board is lost
    /// for good if it has not come back within `grace`. A node without fresh state gives no cause: its collector may be
    /// lost, and not its boards.
    pub fn find<'p>(
        &mut self,
        pods: &'p [FpgaPod],
        nodes: &[KnownNode],
        grace: Millis,
        at: Moment,
    ) -> Vec<Found<'p>> {
        let now = at.now;
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
        let found: BTreeSet<&str> =
            not_prepared.iter().chain(&without_board).map(|found| found.pod.uid.as_str()).collect();
        let mut on_wanted = on_wanted_boards(pods, nodes, at.wall);
        on_wanted.retain(|wanted| !found.contains(wanted.pod.uid.as_str()));
        not_prepared.append(&mut without_board);
        not_prepared.append(&mut on_wanted);
        not_prepared
    }
}

/// The pods with a board that another pod waits to have reconfigured as a whole, where other boards with the same bitstream
/// have time for its load, and their nodes take the pod.
fn on_wanted_boards<'p>(pods: &'p [FpgaPod], nodes: &[KnownNode], now: WallTime) -> Vec<Found<'p>> {
    let with_wanted = nodes.iter().filter_map(|node| {
        let state = node.fresh()?;
        Some((node.name.as_str(), (node, state, wanted(state)?)))
    });
    let with_wanted: BTreeMap<&str, _> = with_wanted.collect();
    let cause = |pod: &FpgaPod| {
        let (node, state, wanted) = with_wanted.get(pod.node.as_deref()?)?;
        let takes = |node: &&KnownNode| places::takes(node, pod, now);
        // Version 0.1 of the node plugin wrote UIDs.
        let own = [waiting_pod(&pod.uid), pod.uid.clone()];
        let is_wanted = |board: &str| wanted.get(board).is_some_and(|waiting| !own.contains(waiting));
        let mut boards = state.devices.iter().filter(|device| pod.boards.contains(&device.id));
        let free = LazyCell::new(|| FreeTime::of(nodes.iter().filter(takes).filter_map(KnownNode::fresh)));
        let board = boards.find(|device| {
            is_wanted(&device.id)
                && if takes(node) { free.covers(state, device) } else { free.covers_load_of(state, device) }
        })?;
        Some(Cause::BoardWanted { board: board.id.clone() })
    };
    let alive = pods.iter().filter(|pod| !pod.is_ending);
    alive.filter_map(|pod| Some(Found { pod, cause: cause(pod)? })).collect()
}

/// The boards of a node off which pods are to be moved. What a late plugin wanted may be over.
fn wanted(state: &NodeState) -> Option<&BTreeMap<String, String>> {
    let plugin = state.plugin.as_ref().filter(|plugin| plugin.heartbeat == Heartbeat::InTime)?;
    Some(&plugin.report.wanted).filter(|wanted| !wanted.is_empty())
}

/// Whether the node's plugin could not serve pods of the pod's controller, and has given this one no board.
fn is_refused(pod: &FpgaPod, state: &NodeState) -> bool {
    let (Some(plugin), Some(owner)) = (&state.plugin, &pod.controller) else { return false };
    let name = controller(&pod.namespace, &owner.uid);
    !pod.is_ready && pod.boards.is_empty() && plugin.report.kept_off.contains(&name)
}

/// Whether a board is missing or does not answer. A board out of rotation keeps its pods. While the node plugin is late, what it offers is not known.
fn is_lost(board: &str, state: &NodeState) -> bool {
    let Some(device) = state.devices.iter().find(|device| device.id == board) else { return true };
    let plugin_reports = state.plugin.as_ref().is_some_and(|plugin| plugin.heartbeat == Heartbeat::InTime);
    state.reported_health(device) == Health::Unhealthy || (plugin_reports && !state.offers(device))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::bitstream::Digest;
    use fpga_core::cordon::CordonedBoards;
    use fpga_core::fixtures::{mk_bitstream, mk_device, mk_plugin, mk_state};
    use fpga_core::node_labels::NodeLabels;
    use fpga_core::node_state::RecentBitstream;
    use fpga_core::node_terms::{Intake, NodeTerms, PodTerms, Taint};
    use fpga_core::requirement::Requirement;
    use fpga_registry_api::Controller;
    use std::sync::Arc;

    const GRACE: Millis = Millis(60_000);
    const NOW: WallTime = WallTime(1_790_000_000_000);
    const DIGEST: Digest = Digest::from_bytes([7; 32]);

    /// Makes a node differ.
    type Change = fn(&mut KnownNode);

    /// What makes a node take no pod.
    const CLOSED: [(&str, Change); 3] = [
        ("is cordoned or not Ready", |node| node.terms.intake = Intake::Closed),
        ("has a taint", |node| {
            let [key, value, effect] = ["fpga", "", "NoSchedule"].map(str::to_owned);
            node.terms.taints = vec![Taint { key, value, effect }];
        }),
        ("keeps the workload off", |node| {
            node.moved_off = Some(format!(r#"{{"shop/rs-1":{}}}"#, NOW.0 + 60_000));
        }),
    ];

    fn at(now: u64) -> Moment {
        Moment { now: MonotonicTime(now), wall: NOW }
    }

    fn pod(name: &str, boards: &[&str], is_ready: bool) -> FpgaPod {
        let controller = Controller { kind: "ReplicaSet".into(), name: "rs".into(), uid: "rs-1".into() };
        FpgaPod {
            namespace: "shop".into(),
            name: name.into(),
            uid: name.into(),
            labels: BTreeMap::new(),
            node: Some("n".into()),
            terms: PodTerms::default(),
            controller: Some(controller),
            requirement: Requirement::default(),
            boards: boards.iter().map(|board| (*board).to_owned()).collect(),
            is_ready,
            is_ending: false,
            new_before_old: false,
        }
    }

    #[test]
    fn pods_that_can_not_move_keep_no_later_one_from_being_judged() {
        let names: Vec<String> = (0..100).map(|number| format!("pod-{number:03}")).collect();
        let pods: Vec<FpgaPod> = names.iter().map(|name| pod(name, &[], false)).collect();
        let all = || pods.iter().map(|pod| Found { pod, cause: Cause::NotPrepared }).collect::<Vec<_>>();
        let mut page = Page::default();
        let mut seen = BTreeSet::new();
        for _ in 0..2 {
            seen.extend(page.next(all(), 64).into_iter().map(|found| found.pod.uid.clone()));
        }
        assert_eq!(seen.len(), 100, "two pages have everybody");
        assert_eq!(page.next(all()[..3].to_vec(), 64).len(), 3, "few are judged at once");
    }

    fn node(state: NodeState) -> KnownNode {
        let (labels, state) = (NodeLabels::default(), Some(Arc::new(state)));
        let terms = NodeTerms::default();
        KnownNode { name: "n".into(), labels, terms, moved_off: None, state, age: Millis::ZERO }
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
        lost.find(pods, nodes, GRACE, at(5));
        let found = lost.find(pods, nodes, GRACE, at(60_005));
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
        let cordoned = with_board(|state| {
            state.cordon(&CordonedBoards::parse(r#"{"dm0":{"sinceMs":5}}"#).unwrap());
        });
        assert_eq!(is_cause(&holder, &cordoned), None, "a board out of rotation keeps its pods");
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
        let mut found = |nodes: &[KnownNode], now| lost.find(&pods[..1], nodes, GRACE, at(now)).len();
        assert_eq!(found(&gone, 0), 0);
        assert_eq!(found(&gone, 59_999), 0);
        assert_eq!(found(&gone, 60_000), 1, "one move, though both boards are lost");
        let one = [pod("p", &["dm0"], true)];
        let mut found = |nodes: &[KnownNode], now| lost.find(&one, nodes, GRACE, at(now)).len();
        assert_eq!(found(&there, 61_000), 0);
        assert_eq!(found(&gone, 62_000), 0);
        assert_eq!(found(&gone, 121_000), 0);
        assert_eq!(found(&gone, 122_000), 1);
    }

    #[test]
    fn pods_go_off_a_board_that_another_one_waits_for_where_their_load_has_room_elsewhere() {
        let bitstream = RecentBitstream { digest: Some((&DIGEST).into()), ..mk_bitstream("sobel", 0) };
        let used = |state: &mut NodeState, seconds: u64| {
            (state.bitstreams, state.devices[0].loaded) = (vec![bitstream.clone()], vec![0]);
            // Of the four slots in five minutes.
            state.devices[0].usage = Millis::from_secs(4 * seconds);
        };
        let wanted = with_board(|state| {
            used(state, 150);
            let mut plugin = mk_plugin(&[("dm0", 2, 2)]);
            plugin.report.wanted = [("dm0".to_owned(), waiting_pod("waits"))].into();
            state.plugin = Some(plugin);
        });
        let elsewhere = |seconds| KnownNode { name: "m".into(), ..with_board(|state| used(state, seconds)) };
        let pods = [pod("waits", &["dm0"], true), pod("has-it", &["dm0"], true), pod("else", &["dm1"], true)];
        let causes = |nodes: &[KnownNode]| -> Vec<(String, Cause)> {
            let found = LostBoards::default().find(&pods[..2], nodes, GRACE, at(0));
            found.into_iter().map(|found| (found.pod.name.clone(), found.cause)).collect()
        };
        let moved = [("has-it".to_owned(), Cause::BoardWanted { board: "dm0".into() })];
        assert_eq!(causes(&[wanted.clone(), elsewhere(149)]), moved);
        assert!(causes(&[wanted.clone(), elsewhere(151)]).is_empty(), "no room for half of a board's time");
        assert!(causes(std::slice::from_ref(&wanted)).is_empty(), "no other board has the bitstream");
        let mut late = wanted.clone();
        let mut state = NodeState::clone(late.state.as_ref().unwrap());
        state.plugin.as_mut().unwrap().heartbeat = Heartbeat::Late;
        late.state = Some(Arc::new(state));
        assert!(causes(&[late, elsewhere(0)]).is_empty(), "what a late plugin wanted may be over");
        for (what, close) in CLOSED {
            let mut closed = elsewhere(0);
            close(&mut closed);
            assert!(causes(&[wanted.clone(), closed]).is_empty(), "the other node {what}");
        }
        let mut cordoned = wanted.clone();
        cordoned.terms.intake = Intake::Closed;
        assert_eq!(causes(&[cordoned, elsewhere(150)]), moved, "the pod's own node is no place for it");
        let nodes = [wanted, elsewhere(0)];
        let others = LostBoards::default().find(&pods[2..], &nodes, Millis(1), at(0));
        assert!(others.is_empty(), "a pod on another board");
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
