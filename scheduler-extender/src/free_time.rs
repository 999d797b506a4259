//! The free time of the cluster's boards for the load that others would have to take over.
//!
//! The load of a board moves with its pods. So a node's boards count for a bitstream only if the node takes all pods that
//! use the bitstream on a board that could be taken from them. Pods of one bitstream are mostly replicas with the same
//! terms; where the terms differ, fewer nodes count, and a board keeps its bitstream. So it does on a node that would not take
//! its own pods again, whose free time is subtracted without having been counted.

use crate::board_pods::{BoardPods, OfNode};
use crate::index::Nodes;
use fpga_core::board_pods::{Life, Place};
use fpga_core::device::ReconfiguredPart;
use fpga_core::node_state::DigestPrefix;
use fpga_core::node_terms::{Intake, NodeTerms, PodTerms};
use fpga_core::redistribution::{FreeTime, digests};
use std::collections::{BTreeMap, BTreeSet};

/// The free time of all boards of the nodes that would take the load.
pub(crate) fn free_time(known: &Nodes, board_pods: &BoardPods) -> FreeTime {
    let users = users(known, board_pods);
    let nodes =
        known.iter().filter_map(|(name, node)| Some(((name, &*node.terms), node.facts.knowledge.state()?)));
    FreeTime::where_taken(nodes, |(name, node): (&str, &NodeTerms), digest| match users.get(&digest) {
        Some(users) => users.iter().all(|pod| node.take(name, pod)),
        // The load of pods that have ended goes nowhere.
        None => node.intake == Intake::Open,
    })
}

/// The terms of the pods that use a bitstream on boards that are reconfigured as a whole. The bitstream of a pod without
/// known boards may be any of its node.
fn users(known: &Nodes, board_pods: &BoardPods) -> BTreeMap<DigestPrefix, BTreeSet<PodTerms>> {
    let mut users: BTreeMap<DigestPrefix, BTreeSet<PodTerms>> = BTreeMap::new();
    for (name, node) in known.iter() {
        let Some(state) = node.facts.knowledge.state() else { continue };
        let OfNode::All(pods) = board_pods.of_node(name) else { continue };
        let stays = pods.iter().filter(|pod| pod.place == Place::Bound && pod.life == Life::Stays);
        for pod in stays {
            let whole =
                state.devices.iter().filter(|device| device.reconfigured_part == ReconfiguredPart::Board);
            let own = whole.filter(|device| pod.boards.is_empty() || pod.boards.contains(&device.id));
            for digest in own.flat_map(|device| digests(state, device)).flatten() {
                let terms = users.entry(digest).or_default();
                if !terms.contains(&pod.terms) {
                    terms.insert(pod.terms.clone());
                }
            }
        }
    }
    users
}
