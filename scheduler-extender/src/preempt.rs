//! Preemption for boards: which nodes have room for a pod without the victims that kube-scheduler proposes, and which
//! other victims would make room. Filter needs the same view: pods that end for a nominated pod are as good as gone.

use crate::app::App;
use crate::board_pods::OfNode;
use crate::index::Node;
use crate::wire::{Candidate as Offered, Eviction, Pod};
use fpga_core::board_pods::{Asking, BoardPod, Life, NodePods, Occupancy};
use fpga_core::decide::Candidate;
use fpga_core::matching::Rejection;
use fpga_core::preemption::{Victims, victims};
use fpga_core::requirement::Requirement;
use std::collections::HashSet;
use std::sync::Arc;

/// The pod that a decision is about.
fn asking<'p>(pod: &'p Pod<'_>) -> Asking<'p> {
    Asking { uid: pod.uid(), priority: pod.priority() }
}

/// Calls `look` with the boards of `node`, whose state is known, and its pods.
fn with_occupancy<R>(
    app: &App,
    pod: &Pod<'_>,
    (name, node): (&str, &Node),
    look: impl FnOnce(&Occupancy<'_>) -> R,
) -> Option<R> {
    let state = node.facts.knowledge.state()?;
    let of_node = app.board_pods.of_node(name);
    let pods: Vec<&BoardPod> = match &of_node {
        OfNode::Unknown => Vec::new(),
        OfNode::All(pods) => pods.iter().map(|pod| &**pod).collect(),
    };
    let pods = match of_node {
        OfNode::Unknown => NodePods::Unknown,
        OfNode::All(_) => NodePods::All(&pods),
    };
    Some(look(&Occupancy::new(state, pods, asking(pod))))
}

/// The node with the numbers of containers that its boards would have without the pods that `leave`; `None` if they are
/// as the node has them.
fn without(node: &Node, occupancy: &Occupancy<'_>, leave: &dyn Fn(&BoardPod) -> bool) -> Option<Arc<Node>> {
    let received = node.facts.knowledge.received()?;
    occupancy.without(leave).map(|state| Arc::new(node.with_state(received, state)))
}

/// The candidates whose boards have other numbers of containers for this pod than the node plugin reports, with their
/// places among the candidates. `node_at` has the name and the node of a place.
pub(crate) fn for_filter<'n>(
    app: &App,
    pod: &Pod<'_>,
    candidates: &[Candidate<'_>],
    node_at: impl Fn(usize) -> Option<(&'n str, &'n Arc<Node>)>,
) -> Vec<(usize, Arc<Node>)> {
    let nominated = app.board_pods.nominated_nodes();
    let has_full_board = |candidate: &Candidate<'_>| {
        let brief = candidate.and_then(|known| known.brief);
        brief.is_some_and(|brief| brief.signals().has_full_board())
    };
    // The usual case, in one fast pass.
    if nominated.is_empty() && !candidates.iter().any(has_full_board) {
        return Vec::new();
    }
    let changed = |(place, candidate): (usize, &Candidate<'_>)| {
        let is_full = has_full_board(candidate);
        if !is_full && nominated.is_empty() {
            return None;
        }
        let (name, node) = node_at(place)?;
        if !is_full && !nominated.contains(name) {
            return None;
        }
        node.facts.knowledge.state()?.plugin.as_ref()?;
        // kube-scheduler evicted them for this pod. It may know of their end earlier than the watch here.
        let is_nominated = pod.nominated_node() == Some(name);
        let leave =
            |other: &BoardPod| is_nominated && other.life == Life::Ends && other.yields_to(pod.priority());
        let changed = with_occupancy(app, pod, (name, node), |boards| without(node, boards, &leave));
        Some((place, changed.flatten()?))
    };
    candidates.iter().enumerate().filter_map(changed).collect()
}

/// Whether an eviction would let the node pass that was rejected for this reason.
pub(crate) fn eviction<'n>(
    app: &App,
    pod: &Pod<'_>,
    asked: &Requirement,
    name: &str,
    node: impl FnOnce() -> Option<&'n Arc<Node>>,
    rejection: Rejection,
) -> Eviction {
    let helps = || {
        let found = |boards: &Occupancy<'_>| victims(asked, boards, &|_| false, asking(pod)).is_some();
        with_occupancy(app, pod, (name, node()?), found)
    };
    match rejection {
        Rejection::NoInstance if helps() == Some(true) => Eviction::Helps,
        _ => Eviction::IsUseless,
    }
}

/// Changes the victims of a candidate so that they free the boards that the pod asks for, if that is possible. Returns
/// the node without them, if its boards would have other numbers of containers.
pub(crate) fn choose_victims(
    app: &App,
    pod: &Pod<'_>,
    asked: &Requirement,
    candidate: &mut Offered<'_>,
    node: &Node,
) -> Option<Arc<Node>> {
    let name = candidate.node.as_str().to_owned();
    let changed = with_occupancy(app, pod, (&name, node), |boards| {
        let proposed: HashSet<&str> = candidate.victims.uids().collect();
        let is_proposed = |other: &BoardPod| proposed.contains(other.uid.as_str());
        let Some(chosen) = victims(asked, boards, &is_proposed, asking(pod)) else {
            return (without(node, boards, &is_proposed), None);
        };
        let leaves = |other: &BoardPod| {
            let uid = other.uid.as_str();
            (is_proposed(other) && !chosen.spared.contains(uid)) || chosen.added.contains(&uid)
        };
        let places = places(boards.pods(), candidate, &chosen);
        let spared: Vec<String> = chosen.spared.iter().map(|uid| (*uid).to_owned()).collect();
        (without(node, boards, &leaves), Some((places, spared)))
    });
    let (without, chosen) = changed?;
    if let Some((places, spared)) = chosen {
        // From the last place on, so that the earlier ones stay valid.
        for (place, uid) in places.iter().rev() {
            candidate.victims.insert(*place, uid);
        }
        candidate.victims.retain(|uid| !spared.iter().any(|spared| spared == uid));
    }
    without
}

/// The place of each added victim among the proposed ones: kube-scheduler expects the greatest priority first.
fn places(pods: &[&BoardPod], candidate: &Offered<'_>, chosen: &Victims<'_>) -> Vec<(usize, String)> {
    let priority = |uid: &str| pods.iter().find(|pod| pod.uid == uid).map(|pod| pod.priority);
    let place = |uid: &&str| {
        let is_before = |proposed: &str| priority(proposed) >= priority(uid);
        let before: Vec<bool> = candidate.victims.uids().map(is_before).collect();
        (before.iter().rposition(|is_before| *is_before).map_or(0, |last| last + 1), (*uid).to_owned())
    };
    chosen.added.iter().map(place).collect()
}
