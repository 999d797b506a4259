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
    pub const ALL: [Self; 13] = [
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
mod tests {
    use super::*;
    use crate::catalog::BoardKind;
    use crate::fixtures::{mk_bitstream, mk_device, mk_node, mk_state};
    use crate::node_state::DigestPrefix;
    use proptest::prelude::*;

    fn asked(vendor: &str, board: &str, shell: &str) -> Requirement {
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Requirement {
            vendor: given(vendor),
            board: given(board),
            shell: given(shell),
            ..Requirement::default()
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

    /// Two boards of different kinds, each with one bitstream in a slot: a10 has sobel, s10 has mm.
    fn two_kinds() -> NodeState {
        let digest = |byte| Some(DigestPrefix::from_bytes([byte; 16]));
        let mut state = NodeState {
            devices: vec![mk_device("intel", "a10", "1"), mk_device("intel", "s10", "2")],
            bitstreams: vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)],
            ..mk_state()
        };
        for (index, device) in (0..).zip(&mut state.devices) {
            device.loaded = vec![index];
            device.platform = format!("platform {index}");
        }
        (state.bitstreams[0].digest, state.bitstreams[1].digest) = (digest(0x0a), digest(0x0b));
        state
    }

    fn digest(byte: &str) -> BitstreamId {
        format!("sha256:{}", byte.repeat(32)).parse().unwrap()
    }

    fn on(board: &str) -> BoardKind {
        BoardKind { board: Some(board.to_owned()), ..BoardKind::default() }
    }

    #[test]
    fn platform_and_loaded_bitstreams_are_asked_of_the_same_single_board() {
        let node = mk_node(two_kinds());
        let of = |platform: &str, loaded: &[BitstreamId], board: &str| {
            let platform = (!platform.is_empty()).then(|| platform.to_owned());
            check(&Requirement { platform, loaded: loaded.to_vec(), ..asked("", board, "") }, &node)
        };
        let name = |name: &str| [name.parse::<BitstreamId>().unwrap()];
        assert_eq!(of("platform 1", &name("mm"), "s10"), Ok(()));
        assert_eq!(of("platform 1", &[digest("0b")], "s10"), Ok(()));
        assert_eq!(of("platform 9", &[], ""), Err(Rejection::Platform));
        assert_eq!(of("platform 1", &[], "a10"), Err(Rejection::NoSingleDevice));
        assert_eq!(of("platform 1", &name("sobel"), ""), Err(Rejection::NoSingleDevice));
        assert_eq!(of("", &name("fft"), ""), Err(Rejection::NotLoaded));
        assert_eq!(of("", &[digest("0c")], ""), Err(Rejection::NotLoaded));
        let both = [&name("sobel")[..], &name("mm")[..]].concat();
        assert_eq!(of("", &both, ""), Err(Rejection::NotLoaded), "each is somewhere, no board has both");
    }

    #[test]
    fn a_digest_in_a_board_of_one_kind_is_not_valid_on_another() {
        let node = mk_node(two_kinds());
        let of = |id: BitstreamId, board: &str| {
            check(&Requirement { bitstreams: vec![id], ..asked("", board, "") }, &node)
        };
        assert_eq!((of(digest("0b"), ""), of(digest("0b"), "s10")), (Ok(()), Ok(())));
        assert_eq!(
            of(digest("0b"), "a10"),
            Err(Rejection::NoSingleDevice),
            "it was made for the other board"
        );
        assert_eq!(of(digest("0c"), "a10"), Ok(()), "nobody has it yet");
        assert_eq!(of("mm".parse().unwrap(), "a10"), Ok(()), "a name is another bitstream there");
        let mut twice = two_kinds();
        twice.devices[0].loaded = vec![0, 1];
        let bitstreams = vec![digest("0b")];
        let asked = Requirement { bitstreams, ..asked("", "a10", "") };
        assert_eq!(check(&asked, &mk_node(twice)), Ok(()), "it is in one of its kind");
        let mut gone = two_kinds();
        gone.devices.remove(0);
        gone.devices.insert(0, mk_device("intel", "x10", "1"));
        let on_x10 = Requirement { board: Some("x10".into()), ..asked };
        assert_eq!(check(&on_x10, &mk_node(gone)), Err(Rejection::NoSingleDevice));
    }

    #[test]
    fn a_listed_bitstream_is_valid_on_its_boards_only() {
        let node = mk_node(two_kinds());
        let of = |valid_on: Vec<Vec<BoardKind>>, board: &str| {
            check(&Requirement { valid_on, ..asked("", board, "") }, &node)
        };
        assert_eq!(of(vec![vec![on("s10")]], ""), Ok(()));
        assert_eq!(of(vec![vec![on("x10"), on("s10")]], ""), Ok(()));
        assert_eq!(of(vec![vec![on("s10")]], "a10"), Err(Rejection::NoSingleDevice));
        assert_eq!(of(vec![vec![on("x10")]], ""), Err(Rejection::InvalidBitstream));
        assert_eq!(
            of(vec![Vec::new()], ""),
            Err(Rejection::InvalidBitstream),
            "unlisted, and that is rejected"
        );
        let two = vec![vec![on("s10")], vec![on("a10")]];
        assert_eq!(of(two, ""), Err(Rejection::InvalidBitstream), "no board is both");
    }

    #[test]
    fn where_the_board_is_not_known_no_listed_bitstream_is_valid() {
        let asked = Requirement { valid_on: vec![vec![on("a10")]], ..asked("intel", "", "") };
        let unnamed = mk_device("intel", "", "1");
        assert_eq!(check(&asked, &node(vec![unnamed])), Err(Rejection::InvalidBitstream));
        assert_eq!(check(&asked, &labelled("intel", "a10")), Ok(()));
        for unlabelled in [UnlabelledNodes::Reject, UnlabelledNodes::Pass] {
            let verdict = matches(&asked, &labelled("intel", ""), unlabelled);
            assert_eq!(verdict, Err(Rejection::InvalidBitstream), "{unlabelled}");
        }
    }

    #[test]
    fn what_no_label_speaks_of_is_not_met_by_labels() {
        let platform = Requirement { platform: Some("p".into()), ..asked("intel", "", "") };
        let loaded = Requirement { loaded: vec!["sobel".parse().unwrap()], ..asked("intel", "", "") };
        let node = labelled("intel", "");
        assert_eq!(check(&platform, &node), Err(Rejection::Platform));
        assert_eq!(check(&loaded, &node), Err(Rejection::NotLoaded));
        assert_eq!(matches(&platform, &node, UnlabelledNodes::Pass), Ok(()));
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

    prop_compose! {
        fn any_device()(
            vendor in "[ab]", board in "[ab]?", shell in "[ab]", platform in "[ab]?", slots in 0_u32..3,
            loaded in prop::collection::vec(0_u32..2, 0..2), sick in prop::bool::weighted(0.2),
        ) -> DeviceState {
            let health = if sick { Health::Unhealthy } else { Health::Healthy };
            DeviceState { slots, loaded, platform, health, ..mk_device(&vendor, &board, &shell) }
        }
    }

    prop_compose! {
        fn any_asked()(
            vendor in prop::option::of("[ab]"), board in prop::option::of("[ab]"), shell in prop::option::of("[ab]"),
            platform in prop::option::of("[ab]"), slots in 1_u32..3, loaded in prop::collection::vec("(sobel|mm)", 0..2),
            valid_on in prop::collection::vec(prop::collection::vec("[ab]".prop_map(|board| on(&board)), 0..2), 0..2),
        ) -> Requirement {
            let loaded = loaded.iter().map(|name| name.parse().unwrap()).collect();
            Requirement { vendor, board, shell, platform, slots, loaded, valid_on, ..Requirement::default() }
        }
    }

    proptest! {
        #[test]
        fn a_node_passes_if_and_only_if_one_of_its_boards_would_alone(
            devices in prop::collection::vec(any_device(), 0..4), asked in any_asked(),
        ) {
            let bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)];
            let with = |devices| mk_node(NodeState { devices, bitstreams: bitstreams.clone(), ..mk_state() });
            let alone = devices.iter().any(|device| check(&asked, &with(vec![device.clone()])).is_ok());
            prop_assert_eq!(check(&asked, &with(devices)).is_ok(), alone);
        }

        #[test]
        fn who_asks_for_less_is_rejected_by_no_more_nodes(
            devices in prop::collection::vec(any_device(), 0..4), asked in any_asked(), which in 0..6,
        ) {
            let bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)];
            let node = mk_node(NodeState { devices, bitstreams, ..mk_state() });
            let mut less = asked.clone();
            match which {
                0 => less.vendor = None,
                1 => less.board = None,
                2 => less.shell = None,
                3 => less.platform = None,
                4 => less.loaded.clear(),
                _ => less.valid_on.clear(),
            }
            prop_assert!(check(&asked, &node).is_err() || check(&less, &node).is_ok());
        }
    }
}
