//! Whether a node has what a pod asks for (S-1): capability and total slots, never load.

use crate::device::Health;
use crate::node_facts::{NodeFacts, NodeLabels};
use crate::node_state::{DeviceState, NodeState};
use crate::requirement::Requirement;
use crate::staleness::Knowledge;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Why a node is rejected. The texts end in events, where kube-scheduler adds up equal ones: no numbers, no names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rejection {
    /// The extender has never seen the node.
    UnknownNode,
    /// No state, and no label of ours either.
    Unlabelled,
    /// The node has a collector and no board.
    NoDevice,
    /// No board of that vendor.
    Vendor,
    /// No such board.
    Board,
    /// No board with that shell.
    Shell,
    /// No board has that many slots.
    Slots,
    /// The boards that would do don't answer.
    Unhealthy,
    /// Each requirement is met by some board, all by none.
    NoSingleDevice,
    /// Its state is not fresh, and the policy excludes such nodes.
    NotFresh,
}

/// What becomes of a node that has neither state nor label.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnlabelledNodes {
    /// It is rejected.
    #[default]
    Reject,
    /// It passes, as in the paper (S-1).
    Pass,
}

/// A text that is no [`UnlabelledNodes`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy for unlabelled nodes; write `reject` or `pass`")]
pub struct InvalidUnlabelledNodes(String);

impl Rejection {
    /// All there are.
    pub const ALL: [Self; 10] = [
        Self::UnknownNode,
        Self::Unlabelled,
        Self::NoDevice,
        Self::Vendor,
        Self::Board,
        Self::Shell,
        Self::Slots,
        Self::Unhealthy,
        Self::NoSingleDevice,
        Self::NotFresh,
    ];

    /// The text for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::UnknownNode => "node is not known to the FPGA scheduler extender",
            Self::Unlabelled => "node has no FPGA label and no FPGA state",
            Self::NoDevice => "node has no FPGA device",
            Self::Vendor => "FPGA vendor does not match",
            Self::Board => "FPGA board does not match",
            Self::Shell => "FPGA shell version does not match",
            Self::Slots => "FPGA device has too few slots",
            Self::Unhealthy => "FPGA device is unhealthy",
            Self::NoSingleDevice => "no single FPGA device meets all requirements",
            Self::NotFresh => "FPGA state of the node is not fresh",
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// Whether the node has what is asked; a stale state still tells what boards there are.
///
/// # Errors
/// The reason if it has not.
pub fn matches(asked: &Requirement, node: &NodeFacts, unlabelled: UnlabelledNodes) -> Result<(), Rejection> {
    match &node.knowledge {
        Knowledge::Known(received) => state_matches(asked, received.state()),
        Knowledge::Absent | Knowledge::Unreadable => labels_match(asked, &node.labels, unlabelled),
    }
}

/// Whether the board is of the asked kind, whatever its slots and health.
#[must_use]
pub fn is_kind(asked: &Requirement, device: &DeviceState) -> bool {
    agrees(asked.vendor.as_deref(), &device.vendor)
        && agrees(asked.board.as_deref(), &device.board)
        && agrees(asked.shell.as_deref(), &device.shell)
}

fn agrees(asked: Option<&str>, is: &str) -> bool {
    asked.is_none_or(|asked| asked == is)
}

fn state_matches(asked: &Requirement, state: &NodeState) -> Result<(), Rejection> {
    let healthy = |device: &DeviceState| device.health == Health::Healthy;
    let meets_all =
        |device: &DeviceState| is_kind(asked, device) && device.slots >= asked.slots && healthy(device);
    if state.devices.iter().any(meets_all) {
        return Ok(());
    }
    Err(why_no_device(asked, &state.devices))
}

/// The first thing that no board has; if each is on some board, what is missing is one board with all.
fn why_no_device(asked: &Requirement, devices: &[DeviceState]) -> Rejection {
    let none = |meets: &dyn Fn(&DeviceState) -> bool| !devices.iter().any(meets);
    let all_but_health = |device: &DeviceState| is_kind(asked, device) && device.slots >= asked.slots;
    if devices.is_empty() {
        Rejection::NoDevice
    } else if none(&|device| agrees(asked.vendor.as_deref(), &device.vendor)) {
        Rejection::Vendor
    } else if none(&|device| agrees(asked.board.as_deref(), &device.board)) {
        Rejection::Board
    } else if none(&|device| agrees(asked.shell.as_deref(), &device.shell)) {
        Rejection::Shell
    } else if none(&|device| device.slots >= asked.slots) {
        Rejection::Slots
    } else if devices.iter().any(all_but_health) {
        Rejection::Unhealthy
    } else {
        Rejection::NoSingleDevice
    }
}

fn labels_match(
    asked: &Requirement,
    labels: &NodeLabels,
    unlabelled: UnlabelledNodes,
) -> Result<(), Rejection> {
    if labels.is_empty() && unlabelled == UnlabelledNodes::Reject {
        return Err(Rejection::Unlabelled);
    }
    let pairs = [
        (&asked.vendor, &labels.vendor, Rejection::Vendor),
        (&asked.board, &labels.board, Rejection::Board),
        (&asked.shell, &labels.shell, Rejection::Shell),
    ];
    for (asked, label, rejection) in pairs {
        let fits = match (asked, label) {
            (None, _) => true,
            (Some(asked), Some(label)) => asked == label,
            (Some(_), None) => unlabelled == UnlabelledNodes::Pass,
        };
        if !fits {
            return Err(rejection);
        }
    }
    Ok(())
}

impl FromStr for UnlabelledNodes {
    type Err = InvalidUnlabelledNodes;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "reject" => Ok(Self::Reject),
            "pass" => Ok(Self::Pass),
            _ => Err(InvalidUnlabelledNodes(text.to_owned())),
        }
    }
}

impl fmt::Display for UnlabelledNodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Reject => "reject",
            Self::Pass => "pass",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{mk_device, mk_node, mk_state};

    fn asked(vendor: &str, board: &str, shell: &str) -> Requirement {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Requirement {
            vendor: given(vendor),
            board: given(board),
            shell: given(shell),
            slots: 1,
            bitstreams: Vec::new(),
        }
    }

    fn node(devices: Vec<DeviceState>) -> NodeFacts {
        mk_node(NodeState { devices, ..mk_state() })
    }

    fn labelled(vendor: &str, board: &str) -> NodeFacts {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        let labels = NodeLabels { vendor: given(vendor), board: given(board), shell: None };
        NodeFacts { labels, knowledge: Knowledge::Absent }
    }

    fn check(asked: &Requirement, node: &NodeFacts) -> Result<(), Rejection> {
        matches(asked, node, UnlabelledNodes::Reject)
    }

    #[test]
    fn one_single_board_must_meet_all_requirements() {
        let mixed = node(vec![mk_device("intel", "a10", "1"), mk_device("xilinx", "u250", "1")]);
        assert_eq!(check(&asked("intel", "a10", "1"), &mixed), Ok(()));
        assert_eq!(check(&asked("intel", "u250", ""), &mixed), Err(Rejection::NoSingleDevice));
    }

    #[test]
    fn the_reason_names_the_first_thing_that_no_board_has() {
        let one = node(vec![mk_device("intel", "a10", "1")]);
        assert_eq!(check(&asked("xilinx", "u250", "2"), &one), Err(Rejection::Vendor));
        assert_eq!(check(&asked("intel", "u250", "2"), &one), Err(Rejection::Board));
        assert_eq!(check(&asked("intel", "a10", "2"), &one), Err(Rejection::Shell));
        assert_eq!(check(&Requirement { slots: 5, ..asked("", "", "") }, &one), Err(Rejection::Slots));
        assert_eq!(check(&asked("", "", ""), &node(Vec::new())), Err(Rejection::NoDevice));
    }

    #[test]
    fn a_board_that_does_not_answer_is_no_board() {
        let mut sick = mk_device("intel", "a10", "1");
        sick.health = Health::Unhealthy;
        assert_eq!(check(&asked("intel", "", ""), &node(vec![sick.clone()])), Err(Rejection::Unhealthy));
        assert_eq!(check(&asked("intel", "", ""), &node(vec![sick, mk_device("intel", "", "")])), Ok(()));
    }

    #[test]
    fn full_slots_reject_nobody() {
        let mut full = mk_device("intel", "a10", "1");
        full.queued = 100;
        assert_eq!(check(&Requirement { slots: 4, ..asked("", "", "") }, &node(vec![full])), Ok(()));
    }

    #[test]
    fn labels_decide_only_where_there_is_no_state() {
        let mut lying = node(vec![mk_device("intel", "a10", "1")]);
        lying.labels = labelled("xilinx", "").labels;
        assert_eq!(check(&asked("xilinx", "", ""), &lying), Err(Rejection::Vendor));
        assert_eq!(check(&asked("xilinx", "", ""), &labelled("xilinx", "")), Ok(()));
        assert_eq!(check(&asked("intel", "", ""), &labelled("xilinx", "")), Err(Rejection::Vendor));
        let unreadable = NodeFacts { knowledge: Knowledge::Unreadable, ..labelled("intel", "") };
        assert_eq!(check(&asked("intel", "", ""), &unreadable), Ok(()));
    }

    #[test]
    fn a_node_without_a_label_passes_only_if_the_paper_is_followed() {
        let bare = labelled("", "");
        assert_eq!(check(&asked("intel", "", ""), &bare), Err(Rejection::Unlabelled));
        assert_eq!(check(&asked("", "", ""), &bare), Err(Rejection::Unlabelled));
        assert_eq!(matches(&asked("intel", "", ""), &bare, UnlabelledNodes::Pass), Ok(()));
        let half = labelled("intel", "");
        assert_eq!(check(&asked("intel", "a10", ""), &half), Err(Rejection::Board));
        assert_eq!(matches(&asked("intel", "a10", ""), &half, UnlabelledNodes::Pass), Ok(()));
        assert_eq!(matches(&asked("amd", "", ""), &half, UnlabelledNodes::Pass), Err(Rejection::Vendor));
    }

    #[test]
    fn reasons_have_texts_without_numbers_and_all_differ() {
        let texts: std::collections::BTreeSet<_> =
            Rejection::ALL.iter().map(|reason| reason.text()).collect();
        assert_eq!(texts.len(), Rejection::ALL.len());
        assert!(texts.iter().all(|text| !text.contains(|c: char| c.is_ascii_digit())));
    }
}
