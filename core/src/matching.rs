//! Whether a node has what a pod asks for (S-1): capability and total slots, never load.

mod held;

use crate::bitstream::BitstreamId;
use crate::device::Health;
use crate::node_facts::NodeFacts;
use crate::node_labels::NodeLabels;
use crate::node_state::{DeviceState, NodeState};
use crate::requirement::Requirement;
use crate::signals::Key;
use crate::staleness::{Knowledge, Received};
use crate::ternary::Ternary;
use held::Held;
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

/// What is asked, ready to be looked for on many nodes.
#[derive(Debug, Clone)]
pub struct Matcher<'a> {
    asked: &'a Requirement,
    /// The bitstreams that decide: those that must be loaded, and digests. A name means another bitstream on another board,
    /// so it excludes none.
    deciding: Vec<(&'a BitstreamId, Key)>,
}

impl<'a> Matcher<'a> {
    /// For `asked`.
    #[must_use]
    pub fn of(asked: &'a Requirement) -> Self {
        let digests = asked.bitstreams.iter().filter(|id| matches!(id, BitstreamId::Digest(_)));
        let deciding = asked.loaded.iter().chain(digests).map(|id| (id, Key::of(id))).collect();
        Self { asked, deciding }
    }

    /// Whether the node has what is asked; a stale state still tells what boards there are. Where a state leaves out what
    /// would tell, the node is not rejected.
    ///
    /// # Errors
    /// The reason if it has not.
    pub fn matches(&self, node: &NodeFacts, unlabelled: UnlabelledNodes) -> Result<(), Rejection> {
        match &node.knowledge {
            Knowledge::Known(received) => self.state_matches(received),
            Knowledge::Absent | Knowledge::Unreadable => labels_match(self.asked, &node.labels, unlabelled),
        }
    }

    fn state_matches(&self, received: &Received) -> Result<(), Rejection> {
        let state = received.state();
        // Most nodes have none of them, which is cheap to see; where something was left out it says nothing.
        let may_have = |key: &Key| state.left_out.concerns_filter() || received.signals().may_have(*key);
        let ids: Vec<&BitstreamId> =
            self.deciding.iter().filter(|(_, key)| may_have(key)).map(|(id, _)| *id).collect();
        let boards = Boards { asked: self.asked, state, held: Held::of(&ids, state) };
        if (0..).zip(&state.devices).any(|(number, device)| {
            device.health == Health::Healthy && boards.meets_all_but_health(number, device).may_be()
        }) {
            return Ok(());
        }
        Err(boards.why_none())
    }
}

/// The boards of one node, and what is asked of them.
struct Boards<'a> {
    asked: &'a Requirement,
    state: &'a NodeState,
    held: Held<'a>,
}

impl Boards<'_> {
    fn meets_all_but_health(&self, number: usize, device: &DeviceState) -> Ternary {
        if !self.is_kind(device).may_be() {
            return Ternary::No;
        }
        let has_slots = Ternary::from(device.slots >= self.asked.slots);
        let bitstreams = || self.is_valid(number, device).and(self.holds_all(number));
        has_slots.and(self.is_of_platform(device)).and(bitstreams())
    }

    /// Whether vendor, board and shell are the asked ones.
    fn is_kind(&self, device: &DeviceState) -> Ternary {
        let asked = self.asked;
        let agrees = agrees(asked.vendor.as_deref(), &device.vendor)
            && agrees(asked.board.as_deref(), &device.board)
            && agrees(asked.shell.as_deref(), &device.shell);
        agrees.into()
    }

    fn is_of_platform(&self, device: &DeviceState) -> Ternary {
        let asked = self.asked.platform.as_deref();
        asked.map_or(Ternary::Yes, |platform| self.state.is_of_platform(device, platform))
    }

    /// Whether all bitstreams that the pod names can be configured on the board: it is one of those that they are listed for,
    /// and none of them lies in a board of another kind on this node. That last goes by digest: a name means another
    /// bitstream on another board.
    fn is_valid(&self, number: usize, device: &DeviceState) -> Ternary {
        let asked = self.asked;
        let listed = asked.valid_on.iter().all(|kinds| kinds.iter().any(|kind| kind.is(device)));
        let all = asked.bitstreams.iter().chain(&asked.loaded);
        let digests = all.filter(|id| matches!(id, BitstreamId::Digest(_)));
        Ternary::all(digests.map(|id| self.held.is_made_for(number, id))).and(listed.into())
    }

    fn holds_all(&self, number: usize) -> Ternary {
        Ternary::all(self.asked.loaded.iter().map(|id| self.held.on(number, id)))
    }

    /// The first thing that no board has; if each is on some board, what is missing is one board with all.
    fn why_none(&self) -> Rejection {
        let (asked, devices) = (self.asked, &self.state.devices);
        let none = |meets: &dyn Fn(usize, &DeviceState) -> Ternary| {
            !(0..).zip(devices).any(|(number, device)| meets(number, device).may_be())
        };
        let no_text = |asked: &Option<String>, is: fn(&DeviceState) -> &str| {
            none(&|_, device| agrees(asked.as_deref(), is(device)).into())
        };
        if devices.is_empty() {
            Rejection::NoDevice
        } else if no_text(&asked.vendor, |device| &device.vendor) {
            Rejection::Vendor
        } else if no_text(&asked.board, |device| &device.board) {
            Rejection::Board
        } else if no_text(&asked.shell, |device| &device.shell) {
            Rejection::Shell
        } else if none(&|_, device| self.is_of_platform(device)) {
            Rejection::Platform
        } else if none(&|_, device| (device.slots >= asked.slots).into()) {
            Rejection::Slots
        } else if none(&|number, device| self.is_valid(number, device)) {
            Rejection::InvalidBitstream
        } else if none(&|number, _| self.holds_all(number)) {
            Rejection::NotLoaded
        } else if !none(&|number, device| self.meets_all_but_health(number, device)) {
            Rejection::Unhealthy
        } else {
            Rejection::NoSingleDevice
        }
    }
}

fn agrees(asked: Option<&str>, is: &str) -> bool {
    asked.is_none_or(|asked| asked == is)
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
