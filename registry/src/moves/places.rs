//! Where a pod may go when it is moved.

use crate::cluster::KnownNode;
use fpga_cluster::moves::Destination;
use fpga_core::catalog::Catalog;
use fpga_core::device::Health;
use fpga_core::library::Library;
use fpga_core::matching::{Matcher, UnlabelledNodes, matching_boards};
use fpga_core::moved_off::{MovedOff, MovedOffAnnotation};
use fpga_core::node_facts::NodeFacts;
use fpga_core::node_state::{NodeState, controller};
use fpga_core::requirement::Requirement;
use fpga_core::staleness::Knowledge;
use fpga_core::units::{Moment, MonotonicTime, WallTime};
use fpga_registry_api::FpgaPod;

/// Whether kube-scheduler and the extender would let the pod onto the node, whatever its boards are.
pub(super) fn takes(node: &KnownNode, pod: &FpgaPod, now: WallTime) -> bool {
    node.terms.take(&node.name, &pod.terms) && !is_kept_off(node, pod, now)
}

/// Whether the node's plugin, or the registry, keeps pods of the pod's controller off the node.
fn is_kept_off(node: &KnownNode, pod: &FpgaPod, now: WallTime) -> bool {
    let Some(owner) = &pod.controller else { return false };
    let owner = controller(&pod.namespace, &owner.uid);
    let plugin = node.state.as_ref().and_then(|state| state.plugin.as_ref());
    let at = MonotonicTime::START;
    let is_marked =
        |text: &String| MovedOffAnnotation::parse(text).at(Moment { now: at, wall: now }).has(&owner, at);
    plugin.is_some_and(|plugin| plugin.report.kept_off.contains(&owner))
        || node.moved_off.as_ref().is_some_and(is_marked)
}

/// Whether there is a place for a pod that had better be elsewhere. The library says which boards its bitstreams are valid on.
pub(super) fn destination(
    pod: &FpgaPod,
    library: &Library,
    nodes: &[KnownNode],
    now: WallTime,
) -> Destination {
    let asked = Requirement {
        // A load that is too high now may be low in a moment.
        max_utilization: None,
        valid_on: library.valid_boards(&pod.namespace, pod.requirement.all_bitstreams(), &Catalog::default()),
        synonyms: library.synonyms(&pod.namespace, &pod.requirement),
        ..pod.requirement.clone()
    };
    let is_place = |node: &KnownNode| takes(node, pod, now) && may_have_room(node, pod, &asked);
    if nodes.iter().any(is_place) { Destination::Somewhere } else { Destination::Nowhere }
}

/// Whether the node may have boards that meet the requirement: in rotation, and on the pod's own node other ones than the pod's,
/// which answer. A board of another node that does not answer may do so in a moment.
fn may_have_room(node: &KnownNode, pod: &FpgaPod, asked: &Requirement) -> bool {
    let Some(state) = &node.state else {
        let (labels, knowledge) = (node.labels.clone(), Knowledge::Absent);
        let facts = NodeFacts { labels, knowledge, moved_off: MovedOff::default() };
        return Matcher::of(asked).matches(&facts, UnlabelledNodes::Reject).is_ok();
    };
    let mut state = NodeState::clone(state);
    if pod.node.as_ref() == Some(&node.name) {
        state.devices.retain(|device| !pod.boards.contains(&device.id));
    } else {
        state.plugin = None;
        let NodeState { devices, cordons, .. } = &mut state;
        for device in devices.iter_mut().filter(|device| !cordons.contains_key(&device.id)) {
            device.health = Health::Healthy;
        }
    }
    matching_boards(asked, &state).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::bitstream::Digest;
    use fpga_core::board_kind::BoardKind;
    use fpga_core::cordon::CordonedBoards;
    use fpga_core::fixtures::{mk_asked, mk_device, mk_plugin, mk_state};
    use fpga_core::library::{AllowedNamespaces, LibraryBitstream, LibraryVariant};
    use fpga_core::node_labels::NodeLabels;
    use fpga_core::node_terms::{NodeTerms, PodTerms};
    use fpga_core::units::Millis;
    use std::collections::BTreeMap;
    use std::sync::Arc;

    const NOW: WallTime = WallTime(1_790_000_000_000);

    /// A node with the board `dm0` of this vendor.
    fn node(name: &str, vendor: &str, change: impl FnOnce(&mut NodeState)) -> KnownNode {
        let mut device = mk_device(vendor, "a10", "1");
        device.id = "dm0".into();
        let mut state =
            NodeState { devices: vec![device], plugin: Some(mk_plugin(&[("dm0", 1, 16)])), ..mk_state() };
        change(&mut state);
        let (labels, terms) = (NodeLabels::default(), NodeTerms::default());
        let state = Some(Arc::new(state));
        KnownNode { name: name.into(), labels, terms, moved_off: None, state, age: Millis::ZERO }
    }

    /// A pod with the board `dm0` of the node `own`.
    fn pod(requirement: Requirement) -> FpgaPod {
        FpgaPod {
            namespace: "shop".into(),
            name: "p".into(),
            uid: "p".into(),
            labels: BTreeMap::new(),
            node: Some("own".into()),
            terms: PodTerms::default(),
            controller: None,
            requirement,
            boards: vec!["dm0".into()],
            is_ready: true,
            is_ending: false,
            new_before_old: false,
        }
    }

    fn lost(name: &str, vendor: &str) -> KnownNode {
        node(name, vendor, |state| state.plugin = Some(mk_plugin(&[])))
    }

    #[test]
    fn a_pod_has_a_place_only_where_a_board_in_rotation_meets_its_requirement() {
        let of_intel = || Requirement { vendor: Some("intel".into()), ..mk_asked(&[]) };
        let cordon = |state: &mut NodeState| {
            state.cordon(&CordonedBoards::parse(r#"{"dm0":{"sinceMs":5}}"#).unwrap());
        };
        let second = |state: &mut NodeState| {
            let mut device = mk_device("intel", "a10", "1");
            device.id = "dm1".into();
            (state.devices, state.plugin) = (vec![device], Some(mk_plugin(&[("dm1", 0, 16)])));
        };
        let small = |state: &mut NodeState| state.devices[0].slots = 1;
        let two_slots = Requirement { slots: 2, ..of_intel() };
        let label = |vendor: &str| {
            let labels = NodeLabels { vendor: Some(vendor.into()), ..NodeLabels::default() };
            KnownNode { state: None, labels, ..node("m", vendor, |_| {}) }
        };
        for (what, asked, other, has_place) in [
            ("another board of the vendor", of_intel(), node("m", "intel", |_| {}), true),
            ("a board that does not answer now", of_intel(), lost("m", "intel"), true),
            ("a cordoned board", of_intel(), node("m", "intel", cordon), false),
            ("a cordoned board for any pod", mk_asked(&[]), node("m", "intel", cordon), false),
            ("a board of another vendor", of_intel(), node("m", "amd", |_| {}), false),
            ("a board of another vendor for any pod", mk_asked(&[]), node("m", "amd", |_| {}), true),
            ("a board with fewer slots", two_slots, node("m", "intel", small), false),
            ("no state, and labels of the vendor", of_intel(), label("intel"), true),
            ("no state, and labels of another vendor", of_intel(), label("amd"), false),
            ("the pod's own node, another board", of_intel(), node("own", "intel", second), true),
            ("the pod's own node, its own board", of_intel(), node("own", "intel", |_| {}), false),
        ] {
            let nodes = [other, lost("own", "intel")];
            let found = destination(&pod(asked), &Library::default(), &nodes, NOW);
            assert_eq!(found == Destination::Somewhere, has_place, "{what}");
        }
    }

    #[test]
    fn a_board_that_the_pods_bitstream_was_not_built_for_is_no_place() {
        let boards = BoardKind { vendor: Some("intel".into()), board: Some("a10".into()), shell: None };
        let variants = vec![LibraryVariant { boards, digest: Digest::from_bytes([7; 32]), region_size: 1 }];
        let mut library = Library::new(None);
        library.insert("shop", "sobel", LibraryBitstream { allowed: AllowedNamespaces::Same, variants });
        for (vendor, expected) in [("intel", Destination::Somewhere), ("amd", Destination::Nowhere)] {
            let nodes = [node("m", vendor, |_| {})];
            assert_eq!(destination(&pod(mk_asked(&["sobel"])), &library, &nodes, NOW), expected, "{vendor}");
        }
    }
}
