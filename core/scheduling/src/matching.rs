//! Whether a node meets a pod's requirement (S-1): kind of board, total slots, number of boards, and an instance left on
//! each of them. The measured load decides only for a pod that says so by `max-utilization`.

mod held;

use crate::bitstream::BitstreamId;
use crate::device::Health;
use crate::node_facts::NodeFacts;
use crate::node_labels::NodeLabels;
use crate::node_state::{DeviceState, Heartbeat, NodeState};
use crate::redistribution::{FreeTime, takes_from_others};
use crate::requirement::Requirement;
use crate::residency::{has_all, holds_synonym};
use crate::signals::Key;
use crate::staleness::{Knowledge, Received};
use crate::ternary::Ternary;
use held::Held;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The reason why a node is rejected. kube-scheduler groups equal texts in its events, so a text has no number and no
/// name in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rejection {
    /// The extender has never seen the node.
    UnknownNode,
    /// The node has neither a state nor one of our labels.
    Unlabelled,
    /// The node has a collector but no board.
    NoDevice,
    /// No board is of the requested vendor.
    Vendor,
    /// No board has the requested name.
    Board,
    /// No board has the requested shell.
    Shell,
    /// No board belongs to the requested OpenCL platform.
    Platform,
    /// No board has as many slots as requested.
    Slots,
    /// The pod's bitstreams are not valid on any board of the node.
    InvalidBitstream,
    /// No board holds the bitstreams that must be loaded already.
    NotLoaded,
    /// The boards that meet the requirement do not answer.
    Unhealthy,
    /// Each part of the requirement is met by some board, but no board meets all of them.
    NoSingleDevice,
    /// Fewer boards meet the requirement than the pod asks for.
    TooFewBoards,
    /// The boards that meet the requirement are used more than the pod allows.
    Utilization,
    /// The boards that meet the requirement have as many containers as they may have.
    NoInstance,
    /// The boards that meet the requirement would be reconfigured as a whole and take another bitstream from others, and
    /// another board has the wanted one.
    LoadedElsewhere,
    /// The boards that meet the requirement would be reconfigured as a whole and take another bitstream from others, for
    /// whose load the other boards with that bitstream have no time.
    NotRedistributable,
    /// The node plugin, without which no container starts, does not report.
    PluginLate,
    /// The node plugin could not serve pods of the same controller, for a reason that does not pass.
    KeptOff,
    /// A pod of the same controller was moved off the node a moment ago.
    MovedOff,
    /// The node's state is not fresh and the stale policy excludes such nodes.
    NotFresh,
    /// The pod's requirement could not be parsed, so no node is known to meet it.
    Misunderstood,
}

/// Whether a node with neither state nor label passes the filter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnlabelledNodes {
    /// The node is rejected.
    #[default]
    Reject,
    /// The node passes, as in the paper (S-1).
    Pass,
}

/// The text is not an [`UnlabelledNodes`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a policy for unlabelled nodes; write `reject` or `pass`")]
pub struct InvalidUnlabelledNodes(String);

impl Rejection {
    /// All reasons.
    pub const ALL: [Self; 22] = [
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
        Self::TooFewBoards,
        Self::Utilization,
        Self::NoInstance,
        Self::LoadedElsewhere,
        Self::NotRedistributable,
        Self::PluginLate,
        Self::KeptOff,
        Self::MovedOff,
        Self::NotFresh,
        Self::Misunderstood,
    ];

    /// The text for people, as it appears in kube-scheduler's events.
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
            Self::TooFewBoards => "too few FPGA devices meet the requirements",
            Self::Utilization => "FPGA device is used more than the pod's max-utilization",
            Self::NoInstance => "FPGA device has as many containers as it may have",
            Self::LoadedElsewhere => {
                "FPGA device is used with another bitstream, and another device has the wanted one"
            }
            Self::NotRedistributable => {
                "FPGA device is used with another bitstream, and the load fits on no other device that has it"
            }
            Self::PluginLate => "FPGA node plugin does not answer",
            Self::KeptOff => "FPGA node plugin could not serve this workload a moment ago",
            Self::MovedOff => "FPGA registry moved this workload off the node a moment ago",
            Self::NotFresh => "FPGA state of the node is not fresh",
            Self::Misunderstood => {
                "what the pod asks of an FPGA can't be understood (see kubectl fpga explain)"
            }
        }
    }

    /// Whether only a change of the node's boards or of the pod could end the reason: no load that goes and no board
    /// that answers again.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::NoDevice
            | Self::Vendor
            | Self::Board
            | Self::Shell
            | Self::Platform
            | Self::Slots
            | Self::InvalidBitstream
            | Self::NoSingleDevice
            | Self::TooFewBoards
            | Self::Misunderstood => true,
            Self::UnknownNode
            | Self::Unlabelled
            | Self::NotLoaded
            | Self::Unhealthy
            | Self::Utilization
            | Self::NoInstance
            | Self::LoadedElsewhere
            | Self::NotRedistributable
            | Self::PluginLate
            | Self::KeptOff
            | Self::MovedOff
            | Self::NotFresh => false,
        }
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// How a node meets a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// The pod gets its boards without others' loss.
    Free,
    /// The pod can get its boards only if one of them is reconfigured as a whole and takes another bitstream from
    /// others.
    TakesFromOthers,
}

/// A requirement with precomputed keys, for matching against many nodes.
#[derive(Debug, Clone)]
pub struct Matcher<'a> {
    asked: &'a Requirement,
    /// The bitstreams that can reject a node: those that must be loaded, and digests. A name identifies another
    /// bitstream on each kind of board and rejects no node.
    deciding: Vec<(&'a BitstreamId, Key)>,
}

impl<'a> Matcher<'a> {
    /// A matcher for the requirement `asked`.
    #[must_use]
    pub fn of(asked: &'a Requirement) -> Self {
        let is_digest = |id: &&BitstreamId| matches!(id, BitstreamId::Digest(_));
        let digests = asked.bitstreams.iter().filter(is_digest);
        let variants = asked.loaded.iter().flat_map(|id| asked.synonyms_of(id)).filter(is_digest);
        let deciding = asked.loaded.iter().chain(digests).chain(variants);
        Self { asked, deciding: deciding.map(|id| (id, Key::of(id))).collect() }
    }

    /// Checks whether `node` meets the requirement. The boards of a stale state still count. A node is not rejected
    /// for something that its state may have left out. So many boards as the pod asks for must meet the requirement,
    /// each of them with an instance left.
    ///
    /// # Errors
    /// The [`Rejection`] if the node does not meet the requirement.
    pub fn matches(&self, node: &NodeFacts, unlabelled: UnlabelledNodes) -> Result<(), Rejection> {
        self.fit(node, unlabelled).map(drop)
    }

    /// As [`Self::matches`], and whether others would lose a bitstream.
    ///
    /// # Errors
    /// The [`Rejection`] if the node does not meet the requirement.
    pub fn fit(&self, node: &NodeFacts, unlabelled: UnlabelledNodes) -> Result<Fit, Rejection> {
        match &node.knowledge {
            Knowledge::Known(received) => self.state_matches(received),
            Knowledge::Absent | Knowledge::Unreadable => {
                labels_match(self.asked, &node.labels, unlabelled).map(|()| Fit::Free)
            }
        }
    }

    /// Whether `node`, which [matches](Self::matches), has the pod's bitstreams on as many boards as the pod asks for.
    #[must_use]
    pub fn has_bitstreams(&self, node: &NodeFacts) -> bool {
        let Knowledge::Known(received) = &node.knowledge else { return false };
        let boards = self.boards(received);
        let loaded = boards.free().filter(|(_, device)| has_all(self.asked, boards.state, device));
        loaded.take(boards.wanted()).count() == boards.wanted()
    }

    /// Whether others' load can be [redistributed](crate::redistribution) from as many boards of `node` as the pod must
    /// take from them.
    #[must_use]
    pub fn can_take(&self, node: &NodeFacts, free_time: &FreeTime) -> bool {
        let Knowledge::Known(received) = &node.knowledge else { return false };
        let boards = self.boards(received);
        let may_be_had = boards.free().filter(|(_, device)| {
            !takes_from_others(self.asked, boards.state, device) || free_time.covers(boards.state, device)
        });
        may_be_had.take(boards.wanted()).count() == boards.wanted()
    }

    fn state_matches(&self, received: &Received) -> Result<Fit, Rejection> {
        let boards = self.boards(received);
        let wanted = boards.wanted();
        let (mut passing, mut without_loss) = (0, 0);
        for (_, device) in boards.free() {
            passing += 1;
            without_loss += usize::from(!takes_from_others(self.asked, boards.state, device));
            if without_loss == wanted {
                break;
            }
        }
        if passing < wanted {
            return Err(boards.why_too_few());
        }
        if let Some(plugin) = &boards.state.plugin
            && plugin.heartbeat == Heartbeat::Late
        {
            return Err(Rejection::PluginLate);
        }
        Ok(if without_loss == wanted { Fit::Free } else { Fit::TakesFromOthers })
    }

    fn boards<'s>(&'s self, received: &'s Received) -> Boards<'s> {
        let state = received.state();
        // Most nodes have none of the bitstreams, and the bloom filter shows that cheaply; but a filter of a shortened
        // state proves nothing.
        let may_have = |key: &Key| state.left_out.concerns_filter() || received.signals().may_have(*key);
        let ids: Vec<&BitstreamId> =
            self.deciding.iter().filter(|(_, key)| may_have(key)).map(|(id, _)| *id).collect();
        Boards { asked: self.asked, state, held: Held::of(&ids, state) }
    }
}

/// The boards of `state` that a container with the requirement may get, as indexes of [`NodeState::devices`]: at least
/// as many as it asks for. A board with as many containers as it may have is among them, since the container is on the
/// node already.
///
/// # Errors
/// The [`Rejection`] if fewer boards than asked for may be given.
pub fn matching_boards(asked: &Requirement, state: &NodeState) -> Result<Vec<usize>, Rejection> {
    let deciding = Matcher::of(asked).deciding;
    let ids: Vec<&BitstreamId> = deciding.iter().map(|(id, _)| *id).collect();
    let boards = Boards { asked, state, held: Held::of(&ids, state) };
    let numbers: Vec<usize> = boards.usable().map(|(number, _)| number).collect();
    if numbers.len() < boards.wanted() { Err(boards.why_too_few()) } else { Ok(numbers) }
}

/// Whether the node plugin of `node` told that it can't serve pods of this
/// [`controller`](crate::node_state::controller).
#[must_use]
pub fn is_kept_off(node: &NodeFacts, controller: &str) -> bool {
    let Knowledge::Known(received) = &node.knowledge else { return false };
    received.state().plugin.as_ref().is_some_and(|plugin| plugin.report.kept_off.contains(controller))
}

/// The boards of one node and the requirement that they are matched against.
struct Boards<'a> {
    asked: &'a Requirement,
    state: &'a NodeState,
    held: Held<'a>,
}

impl Boards<'_> {
    /// Number of boards that a container needs.
    fn wanted(&self) -> usize {
        usize::try_from(self.asked.boards.max(1)).unwrap_or(usize::MAX)
    }

    /// The boards of the requested kind, healthy or not, whatever their load.
    fn meeting(&self) -> impl Iterator<Item = (usize, &DeviceState)> {
        (0..).zip(&self.state.devices).filter(|(number, device)| self.meets(*number, device).may_be())
    }

    /// The boards that answer, for their managers and for the node plugin.
    fn answering(&self) -> impl Iterator<Item = (usize, &DeviceState)> {
        self.meeting().filter(|(_, device)| device.health == Health::Healthy && self.state.offers(device))
    }

    /// The boards that answer and whose utilization the pod allows.
    fn usable(&self) -> impl Iterator<Item = (usize, &DeviceState)> {
        let allowed = |device: &DeviceState| {
            self.asked.max_utilization.is_none_or(|most| self.state.utilization(device) <= most)
        };
        self.answering().filter(move |(_, device)| allowed(device))
    }

    /// The usable boards that have an instance left.
    fn free(&self) -> impl Iterator<Item = (usize, &DeviceState)> {
        self.usable().filter(|(_, device)| self.state.has_instances_left(device))
    }

    fn meets(&self, number: usize, device: &DeviceState) -> Ternary {
        if !self.is_kind(device).may_be() {
            return Ternary::No;
        }
        let has_slots = Ternary::from(device.slots >= self.asked.slots);
        let bitstreams = || self.is_valid(number, device).and(self.holds_all(number));
        has_slots.and(self.is_of_platform(device)).and(bitstreams())
    }

    /// Whether vendor, board and shell are the requested ones.
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

    /// Whether all bitstreams of the pod are valid on the board: the catalog lists the board for each of them, and no
    /// bitstream is in a slot of a board of another kind only. The second condition applies to digests, since a name
    /// identifies another bitstream on each kind of board.
    fn is_valid(&self, number: usize, device: &DeviceState) -> Ternary {
        let asked = self.asked;
        let listed = asked.valid_on.iter().all(|kinds| kinds.iter().any(|kind| kind.is(device)));
        let all = asked.bitstreams.iter().chain(&asked.loaded);
        let digests = all.filter(|id| matches!(id, BitstreamId::Digest(_)));
        Ternary::all(digests.map(|id| self.held.is_made_for(number, id))).and(listed.into())
    }

    fn holds_all(&self, number: usize) -> Ternary {
        let asked = self.asked;
        let by_synonym = |synonym: &BitstreamId| match (synonym, self.state.devices.get(number)) {
            (BitstreamId::Name(_), Some(device)) => holds_synonym(self.state, device, synonym),
            (BitstreamId::Digest(_), _) | (_, None) => self.held.on(number, synonym),
        };
        let holds = |id: &BitstreamId| {
            self.held.on(number, id).or(Ternary::any(asked.synonyms_of(id).iter().map(by_synonym)))
        };
        Ternary::all(asked.loaded.iter().map(holds))
    }

    /// The first part of the requirement that no board meets, or the first condition after which too few boards are
    /// left.
    fn why_too_few(&self) -> Rejection {
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
        } else if self.meeting().next().is_none() {
            Rejection::NoSingleDevice
        } else if self.meeting().count() < self.wanted() {
            Rejection::TooFewBoards
        } else if self.answering().count() < self.wanted() {
            Rejection::Unhealthy
        } else if self.usable().count() < self.wanted() {
            Rejection::Utilization
        } else {
            Rejection::NoInstance
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
    // There are no labels for these.
    let beyond_labels = [
        (asked.platform.is_some(), Rejection::Platform),
        (!asked.loaded.is_empty(), Rejection::NotLoaded),
        (asked.boards > 1, Rejection::TooFewBoards),
        (asked.max_utilization.is_some(), Rejection::Utilization),
    ];
    match beyond_labels.into_iter().find(|(asked, _)| *asked) {
        Some((_, rejection)) if unlabelled == UnlabelledNodes::Reject => return Err(rejection),
        _ => {}
    }
    // Checked even with `UnlabelledNodes::Pass`: a bitstream on the wrong board does damage.
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
