//! Whether a node meets a pod's requirement (S-1): kind of board, total slots, number of boards, and an instance left on
//! each of them. The measured load decides only for a pod that says so by `max-utilization`.

mod held;
mod rejection;

pub use rejection::Rejection;

use crate::bitstream::BitstreamId;
use crate::device::Health;
use crate::node_facts::{KnownNode, NodeFacts};
use crate::node_labels::NodeLabels;
use crate::node_state::{DeviceState, Heartbeat, NodeState};
use crate::redistribution::{FreeTime, takes_from_others};
use crate::requirement::Requirement;
use crate::residency::{has_all, holds_synonym};
use crate::signals::{Key, Signals};
use crate::staleness::{Knowledge, Received};
use crate::ternary::Ternary;
use foldhash::fast::RandomState;
use held::Held;
use serde::{Deserialize, Serialize};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

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
    /// The bitstreams that can decide about a node where no board may lose one, and those that can elsewhere.
    can_reject: Vec<Key>,
    can_decide: Vec<Key>,
    /// How nodes of each shape meet the requirement, as far as it was asked for, and the shape that was asked for last.
    by_shape: RefCell<HashMap<u64, Result<Fit, Rejection>, RandomState>>,
    last: Cell<Option<(u64, Result<Fit, Rejection>)>>,
}

impl<'a> Matcher<'a> {
    /// A matcher for the requirement `asked`.
    #[must_use]
    pub fn of(asked: &'a Requirement) -> Self {
        let is_digest = |id: &&BitstreamId| matches!(id, BitstreamId::Digest(_));
        let digests = asked.bitstreams.iter().filter(is_digest);
        let variants = asked.loaded.iter().flat_map(|id| asked.synonyms_of(id)).filter(is_digest);
        let deciding = asked.loaded.iter().chain(digests).chain(variants);
        let deciding: Vec<_> = deciding.map(|id| (id, Key::of(id))).collect();
        let named = asked.all_bitstreams().flat_map(|id| asked.synonyms_of(id).iter().chain([id]));
        let can_decide: Vec<Key> = named.map(Key::of).collect();
        let can_reject = match asked.loaded.is_empty() {
            true => deciding.iter().map(|(_, key)| *key).collect(),
            false => can_decide.clone(),
        };
        Self { asked, deciding, can_reject, can_decide, by_shape: RefCell::default(), last: Cell::default() }
    }

    /// Checks whether `node` meets the requirement. The boards of a stale state still count. A node is not rejected
    /// for something that its state may have left out. So many boards as the pod asks for must meet the requirement,
    /// each of them with an instance left.
    ///
    /// # Errors
    /// The [`Rejection`] if the node does not meet the requirement.
    pub fn matches(&self, node: &NodeFacts, unlabelled: UnlabelledNodes) -> Result<(), Rejection> {
        self.fit(node.known(), unlabelled).map(drop)
    }

    /// As [`Self::matches`], and whether others would lose a bitstream.
    ///
    /// # Errors
    /// The [`Rejection`] if the node does not meet the requirement.
    #[inline]
    pub fn fit(&self, node: KnownNode<'_>, unlabelled: UnlabelledNodes) -> Result<Fit, Rejection> {
        let shape = node.brief.and_then(|brief| self.shared_shape(brief.signals()));
        let known = self.last.get().filter(|(last, _)| shape == Some(*last));
        known.map_or_else(|| self.fit_of(node, shape, unlabelled), |(_, fit)| fit)
    }

    /// The hash of the node's shape, if all nodes of the shape get one answer.
    #[inline]
    fn shared_shape(&self, signals: &Signals) -> Option<u64> {
        let shape = signals.shape();
        let deciding = if shape.flags().may_lose { &self.can_decide } else { &self.can_reject };
        let is_its_own = self.asked.max_utilization.is_some() || signals.may_have_any(deciding);
        shape.shared().filter(|_| !is_its_own)
    }

    #[inline(never)]
    fn fit_of(&self, node: KnownNode<'_>, shape: Option<u64>, by: UnlabelledNodes) -> Result<Fit, Rejection> {
        let by_state = || match &node.facts.knowledge {
            Knowledge::Known(received) => self.state_matches(received),
            Knowledge::Absent | Knowledge::Unreadable => {
                labels_match(self.asked, &node.facts.labels, by).map(|()| Fit::Free)
            }
        };
        let Some(hash) = shape else { return by_state() };
        let fit = *self.by_shape.borrow_mut().entry(hash).or_insert_with(by_state);
        self.last.set(Some((hash, fit)));
        fit
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
pub fn is_kept_off(node: KnownNode<'_>, controller: &str) -> bool {
    let may_be = node.brief.is_some_and(|brief| brief.signals().shape().flags().keeps_off);
    let Some(state) = node.facts.knowledge.state().filter(|_| may_be) else { return false };
    state.plugin.as_ref().is_some_and(|plugin| plugin.report.kept_off.contains(controller))
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

    /// The boards in rotation that answer, for their managers and for the node plugin.
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
            let in_rotation_or_not = |device: &DeviceState| {
                self.state.reported_health(device) == Health::Healthy && self.state.offers(device)
            };
            let answering = self.meeting().filter(|(_, device)| in_rotation_or_not(device));
            if answering.count() < self.wanted() { Rejection::Unhealthy } else { Rejection::Cordoned }
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
