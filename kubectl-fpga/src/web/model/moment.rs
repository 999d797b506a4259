//! What happened a moment ago: bitstreams that came and went, boards that stopped to answer, pods that were placed.

use super::node_row::{BoardRow, NodeRow};
use super::pod_row::PodRow;
use serde::Serialize;

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Moment {
    /// Time, milliseconds since the epoch.
    pub at_ms: u64,
    /// What it was.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", rename_all_fields = "camelCase", tag = "what")]
pub enum What {
    /// A bitstream was loaded, perhaps in the place of another one.
    Loaded {
        /// Node.
        node: String,
        /// Board of the node.
        board: String,
        /// Name of the bitstream.
        bitstream: String,
        /// The bitstream that had the slot.
        evicted: Option<String>,
    },
    /// A bitstream has gone, and its slot is empty.
    Evicted {
        /// Node.
        node: String,
        /// Board of the node.
        board: String,
        /// Name of the bitstream.
        bitstream: String,
    },
    /// A board answers again, or does not answer any more.
    Health {
        /// Node.
        node: String,
        /// Board of the node.
        board: String,
        /// Whether it answers.
        is_healthy: bool,
    },
    /// A pod waits for a node.
    Waits {
        /// `NAMESPACE/NAME`.
        pod: String,
    },
    /// A pod got a node.
    Placed {
        /// `NAMESPACE/NAME`.
        pod: String,
        /// The node.
        node: String,
    },
    /// A pod has gone.
    Gone {
        /// `NAMESPACE/NAME`.
        pod: String,
    },
}

/// What happened between two rows of a node. At first sight nothing did.
#[must_use]
pub fn of_node(name: &str, before: Option<&NodeRow>, now: &NodeRow) -> Vec<What> {
    let Some(before) = before else { return Vec::new() };
    let pairs = now
        .boards
        .iter()
        .filter_map(|board| Some((before.boards.iter().find(|earlier| earlier.id == board.id)?, board)));
    pairs.flat_map(|(before, now)| of_board(name, before, now)).collect()
}

fn of_board(node: &str, before: &BoardRow, now: &BoardRow) -> Vec<What> {
    let (node, board) = (node.to_owned(), now.id.clone());
    let mut all = Vec::new();
    // A bitstream stays in its slot as long as the board has it, so what differs has come or gone.
    for (before, now) in before.slots.iter().zip(&now.slots).filter(|(before, now)| before != now) {
        let (node, board) = (node.clone(), board.clone());
        match (before.clone(), now.clone()) {
            (evicted, Some(bitstream)) => all.push(What::Loaded { node, board, bitstream, evicted }),
            (Some(bitstream), None) => all.push(What::Evicted { node, board, bitstream }),
            (None, None) => {}
        }
    }
    if before.is_healthy != now.is_healthy {
        all.push(What::Health { node, board, is_healthy: now.is_healthy });
    }
    all
}

/// What happened between two rows of the pod with this `NAMESPACE/NAME`.
#[must_use]
pub fn of_pod(key: &str, before: Option<&PodRow>, now: Option<&PodRow>) -> Option<What> {
    let pod = key.to_owned();
    match (before, now) {
        (Some(_), None) => Some(What::Gone { pod }),
        (None, Some(PodRow { node: None, .. })) => Some(What::Waits { pod }),
        (before, Some(PodRow { node: Some(node), .. })) => {
            let was_there = before.is_some_and(|before| before.node.is_some());
            (!was_there).then(|| What::Placed { pod, node: node.clone() })
        }
        (Some(_), Some(PodRow { node: None, .. })) | (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(slots: [Option<&str>; 2], is_healthy: bool) -> NodeRow {
        let board = BoardRow {
            id: "dm0".to_owned(),
            kind: String::new(),
            is_healthy,
            cordon: None,
            is_whole: false,
            slots: slots.map(|slot| slot.map(str::to_owned)).to_vec(),
            more_slots: 0,
            queued: 0,
            usage: 0,
            reconfiguration: 0,
            instances: None,
        };
        NodeRow {
            freshness: "fresh".to_owned(),
            source: String::new(),
            problem: None,
            labels: [None, None, None],
            measured_at_ms: None,
            window_ms: 0,
            usage: 0,
            reconfiguration: 0,
            trend: Vec::new(),
            boards: vec![board],
        }
    }

    #[test]
    fn bitstreams_are_loaded_in_the_place_of_others_or_go() {
        let (before, now) = (board([Some("sobel"), Some("mm")], true), board([Some("sha"), None], false));
        let (node, id) = ("n".to_owned(), "dm0".to_owned());
        let happened = [
            What::Loaded {
                node: node.clone(),
                board: id.clone(),
                bitstream: "sha".to_owned(),
                evicted: Some("sobel".to_owned()),
            },
            What::Evicted { node: node.clone(), board: id.clone(), bitstream: "mm".to_owned() },
            What::Health { node, board: id, is_healthy: false },
        ];
        assert_eq!(of_node("n", Some(&before), &now), happened);
        assert_eq!((of_node("n", None, &now), of_node("n", Some(&now), &now)), (vec![], vec![]));
    }

    #[test]
    fn a_pod_waits_is_placed_and_goes() {
        let pod = |node: Option<&str>| PodRow { node: node.map(str::to_owned), ..PodRow::default() };
        let key = || "d/p".to_owned();
        assert_eq!(of_pod("d/p", None, Some(&pod(None))), Some(What::Waits { pod: key() }));
        let placed = Some(What::Placed { pod: key(), node: "n".to_owned() });
        assert_eq!(of_pod("d/p", Some(&pod(None)), Some(&pod(Some("n")))), placed);
        assert_eq!(of_pod("d/p", None, Some(&pod(Some("n")))), placed);
        assert_eq!(of_pod("d/p", Some(&pod(Some("n"))), Some(&pod(Some("n")))), None);
        assert_eq!(of_pod("d/p", Some(&pod(None)), None), Some(What::Gone { pod: key() }));
    }
}
