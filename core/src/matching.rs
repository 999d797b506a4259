//! Whether a node has what a pod asks for (S-1): capability and total slots, never load.

use crate::bitstream::BitstreamId;
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
    /// No board of that OpenCL platform.
    Platform,
    /// No board has that many slots.
    Slots,
    /// The bitstreams that the pod names are not valid on its boards.
    InvalidBitstream,
    /// No board holds the bitstreams that must be loaded.
    NotLoaded,
    /// The boards that would do don't answer.
    Unhealthy,
    /// Each requirement is met by some board, all by none.
    NoSingleDevice,
    /// Its state is not fresh, and the policy excludes such nodes.
    NotFresh,
    /// What the pod asks for can't be understood, so that no node is known to have it.
    Misunderstood,
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
    pub const ALL: [Self; 14] = [
        Self::UnknownNode,
        Self::Unlabelled,
        Self::NoDevice,
        Self::Vendor,
        Self::Board,
        Self::Shell,
        Self::Platform,
        Self::Slots,
        Self::InvalidBitstream,
        Self::NotLoaded,
        Self::Unhealthy,
        Self::NoSingleDevice,
        Self::NotFresh,
        Self::Misunderstood,
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
            Self::Platform => "FPGA platform does not match",
            Self::InvalidBitstream => "bitstream is not valid on the FPGA device",
            Self::NotLoaded => "FPGA device has not loaded the bitstream that must be there",
            Self::Slots => "FPGA device has too few slots",
            Self::Unhealthy => "FPGA device is unhealthy",
            Self::NoSingleDevice => "no single FPGA device meets all requirements",
            Self::NotFresh => "FPGA state of the node is not fresh",
            Self::Misunderstood => {
                "what the pod asks of an FPGA can't be understood (see kubectl fpga explain)"
            }
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
        && agrees(asked.platform.as_deref(), &device.platform)
}

fn agrees(asked: Option<&str>, is: &str) -> bool {
    asked.is_none_or(|asked| asked == is)
}

fn state_matches(asked: &Requirement, state: &NodeState) -> Result<(), Rejection> {
    let meets_all =
        |device: &DeviceState| device.health == Health::Healthy && meets_all_but_health(asked, device, state);
    if state.devices.iter().any(meets_all) {
        return Ok(());
    }
    Err(why_no_device(asked, state))
}

fn meets_all_but_health(asked: &Requirement, device: &DeviceState, state: &NodeState) -> bool {
    is_kind(asked, device)
        && device.slots >= asked.slots
        && is_valid(asked, device, state)
        && holds_all(asked, device, state)
}

/// Whether all bitstreams that the pod names can be configured on the board: it is one of those that they are listed for, and
/// none of them lies in a board of another kind on this node. That last goes by digest: a name means another bitstream on
/// another board.
fn is_valid(asked: &Requirement, device: &DeviceState, state: &NodeState) -> bool {
    let listed = asked.valid_on.iter().all(|kinds| kinds.iter().any(|kind| kind.is(device)));
    let made_for_another = |id: &BitstreamId| {
        let mut holders = state.devices.iter().filter(|holder| state.holds(holder, id)).peekable();
        holders.peek().is_some() && !holders.any(|holder| same_kind(holder, device))
    };
    let digests =
        asked.bitstreams.iter().chain(&asked.loaded).filter(|id| matches!(id, BitstreamId::Digest(_)));
    listed && !digests.into_iter().any(made_for_another)
}

fn same_kind(one: &DeviceState, other: &DeviceState) -> bool {
    (&one.vendor, &one.board, &one.shell) == (&other.vendor, &other.board, &other.shell)
}

fn holds_all(asked: &Requirement, device: &DeviceState, state: &NodeState) -> bool {
    asked.loaded.iter().all(|id| state.holds(device, id))
}

/// The first thing that no board has; if each is on some board, what is missing is one board with all.
fn why_no_device(asked: &Requirement, state: &NodeState) -> Rejection {
    let devices = &state.devices;
    let none = |meets: &dyn Fn(&DeviceState) -> bool| !devices.iter().any(meets);
    if devices.is_empty() {
        Rejection::NoDevice
    } else if none(&|device| agrees(asked.vendor.as_deref(), &device.vendor)) {
        Rejection::Vendor
    } else if none(&|device| agrees(asked.board.as_deref(), &device.board)) {
        Rejection::Board
    } else if none(&|device| agrees(asked.shell.as_deref(), &device.shell)) {
        Rejection::Shell
    } else if none(&|device| agrees(asked.platform.as_deref(), &device.platform)) {
        Rejection::Platform
    } else if none(&|device| device.slots >= asked.slots) {
        Rejection::Slots
    } else if none(&|device| is_valid(asked, device, state)) {
        Rejection::InvalidBitstream
    } else if none(&|device| holds_all(asked, device, state)) {
        Rejection::NotLoaded
    } else if devices.iter().any(|device| meets_all_but_health(asked, device, state)) {
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
    // Of these no label speaks.
    let beyond_labels =
        [(asked.platform.is_some(), Rejection::Platform), (!asked.loaded.is_empty(), Rejection::NotLoaded)];
    match beyond_labels.into_iter().find(|(asked, _)| *asked) {
        Some((_, rejection)) if unlabelled == UnlabelledNodes::Reject => return Err(rejection),
        _ => {}
    }
    // Not even where the paper is followed: a bitstream on the wrong board does damage.
    let valid = asked.valid_on.iter().all(|kinds| kinds.iter().any(|kind| kind.is_labelled(labels)));
    if valid { Ok(()) } else { Err(Rejection::InvalidBitstream) }
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
mod tests;
