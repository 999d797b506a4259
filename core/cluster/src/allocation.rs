//! The boards of a node that a container gets: the query and the order of Algorithm 1 (B-7).
//!
//! The query lets boards pass that meet the pod's requirement. The order prefers a board that has the bitstreams in its
//! slots, then the least used one, then the one with the fewest instances, and at last the first id. Without the number
//! of instances all pods of a burst would go to one board, because none of them has used it yet. A board that is
//! reconfigured as a whole and would take another bitstream from others comes after those that would not.

use fpga_core::bitstream::BitstreamId;
use fpga_core::matching::{Rejection, matching_boards};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_core::redistribution::takes_from_others;
use fpga_core::requirement::Requirement;
use fpga_core::residency::holds;
use fpga_core::utilization::Utilization;
use std::cmp::Reverse;
use std::fmt;

/// The instances on the boards of a node.
pub trait Occupation {
    /// Number of instances that the board with this id has. The instance that asks does not count.
    fn instances(&self, board: &str) -> u32;
}

/// The reason why a container gets no boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}{rejection}", many(*.boards))]
pub struct Shortage {
    /// The reason why too few boards may be given.
    pub rejection: Rejection,
    /// Number of different boards that are wanted.
    pub boards: u32,
}

fn many(boards: u32) -> String {
    if boards == 1 { String::new() } else { format!("{boards} boards of this node are wanted: ") }
}

/// The boards that a container gets, and what decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice<'s> {
    /// The boards that pass the query, best first.
    ranked: Vec<Rank<'s>>,
    /// The boards that do not, each with the reason.
    unsuitable: Vec<(&'s str, Rejection)>,
    /// Number of boards that the container gets: the first of `ranked`.
    wanted: usize,
}

/// What is compared of two boards, field by field.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Rank<'s> {
    is_full: bool,
    takes_from_others: bool,
    /// Number of the pod's bitstreams that are in a slot of the board.
    resident: Reverse<usize>,
    utilization: Utilization,
    instances: u32,
    id: &'s str,
}

/// Number of other boards that the text of a [`Choice`] names.
const MAX_OTHERS: usize = 8;

/// The boards that a container gets: as many different ones as it requires. A board with `limit` instances or more is
/// taken only where no other one is left: the number of containers never refuses one.
///
/// # Errors
/// [`Shortage`], if not enough boards pass the query.
pub fn choose<'s>(
    requirement: &Requirement,
    state: &'s NodeState,
    occupation: &impl Occupation,
    limit: u32,
) -> Result<Choice<'s>, Shortage> {
    let boards = requirement.boards.max(1);
    let fitting = matching_boards(requirement, state).map_err(|rejection| Shortage { rejection, boards })?;
    let of_fitting = fitting.iter().filter_map(|number| state.devices.get(*number));
    let mut ranked: Vec<Rank<'s>> = of_fitting
        .map(|board| {
            let instances = occupation.instances(&board.id);
            Rank {
                is_full: instances >= limit,
                takes_from_others: takes_from_others(requirement, state, board),
                resident: Reverse(resident(requirement, state, board)),
                utilization: state.utilization(board),
                instances,
                id: &board.id,
            }
        })
        .collect();
    ranked.sort();
    let unsuitable = (0..).zip(&state.devices).filter(|(number, _)| !fitting.contains(number));
    let unsuitable =
        unsuitable.map(|(_, board)| (board.id.as_str(), why_unsuitable(requirement, state, board)));
    let wanted = usize::try_from(boards).unwrap_or(usize::MAX);
    Ok(Choice { ranked, unsuitable: unsuitable.collect(), wanted })
}

impl<'s> Choice<'s> {
    /// The ids of the boards that the container gets, best first.
    pub fn boards(&self) -> impl Iterator<Item = &'s str> {
        self.ranked.iter().take(self.wanted).map(|rank| rank.id)
    }
}

impl fmt::Display for Choice<'_> {
    /// Why these boards and no others, for people: `b1 (bitstream loaded, 12.5 % used, 3 containers) before b0 (0 %
    /// used, 5 containers); not b2: FPGA board does not match`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (chosen, others) = self.ranked.split_at(self.wanted.min(self.ranked.len()));
        for (boards, introduction) in [(chosen, ""), (others, " before ")] {
            for (number, rank) in boards.iter().take(MAX_OTHERS).enumerate() {
                f.write_str(if number == 0 { introduction } else { ", " })?;
                rank.fmt(f)?;
            }
            more(boards.len(), f)?;
        }
        for (board, rejection) in self.unsuitable.iter().take(MAX_OTHERS) {
            write!(f, "; not {board}: {rejection}")?;
        }
        more(self.unsuitable.len(), f)
    }
}

impl fmt::Display for Rank<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_full, takes_from_others, resident: Reverse(resident), utilization, instances, id } =
            self;
        write!(f, "{id} (")?;
        if *is_full {
            f.write_str("full, ")?;
        }
        if *takes_from_others {
            f.write_str("others would lose their bitstream, ")?;
        }
        if *resident > 0 {
            f.write_str("bitstream loaded, ")?;
        }
        let plural = if *instances == 1 { "" } else { "s" };
        write!(f, "{utilization} used, {instances} container{plural})")
    }
}

/// Says how many of `all` boards are not named.
fn more(all: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match all.saturating_sub(MAX_OTHERS) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}

/// The reason why a container may not get this board.
fn why_unsuitable(requirement: &Requirement, state: &NodeState, board: &DeviceState) -> Rejection {
    let alone = NodeState { devices: vec![board.clone()], ..state.clone() };
    let one = Requirement { boards: 1, ..requirement.clone() };
    // Only a bitstream that is on a board of another kind speaks against a board that would do alone.
    matching_boards(&one, &alone).err().unwrap_or(Rejection::InvalidBitstream)
}

/// Number of the requirement's bitstreams that are in a slot of the board.
fn resident(requirement: &Requirement, state: &NodeState, board: &DeviceState) -> usize {
    let is_resident = |id: &&BitstreamId| holds(requirement, state, board, id).is_yes();
    requirement.bitstreams.iter().filter(is_resident).count()
}

#[cfg(test)]
mod query_property;

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::device::{Health, ReconfiguredPart};
    use fpga_core::fixtures::{mk_asked, mk_bitstream, mk_board, mk_plugin, mk_state};
    use fpga_core::units::Millis;
    use std::collections::BTreeMap;

    impl Occupation for BTreeMap<&str, u32> {
        fn instances(&self, board: &str) -> u32 {
            self.get(board).copied().unwrap_or(0)
        }
    }

    /// A node with these boards; bitstream 0 is `sobel`, 1 is `mm`.
    fn mk_node(boards: Vec<DeviceState>) -> NodeState {
        let bitstreams = vec![mk_bitstream("sobel", 0), mk_bitstream("mm", 0)];
        NodeState { devices: boards, bitstreams, ..mk_state() }
    }

    fn first(requirement: &Requirement, state: &NodeState, occupation: &BTreeMap<&str, u32>) -> String {
        choose(requirement, state, occupation, 16).unwrap().boards().next().unwrap().to_owned()
    }

    #[test]
    fn each_step_of_the_order_decides_where_the_steps_before_it_are_equal() {
        let busy = |id, seconds| DeviceState { usage: Millis::from_secs(seconds), ..mk_board(id, &[]) };
        let asked = mk_asked(&["sobel"]);
        let nobody = BTreeMap::new();
        let resident = mk_node(vec![
            mk_board("a", &[]),
            DeviceState { usage: Millis::from_secs(200), ..mk_board("b", &[0]) },
        ]);
        assert_eq!(first(&asked, &resident, &nobody), "b", "a resident bitstream comes before use");
        let used = mk_node(vec![busy("a", 2), busy("b", 1)]);
        assert_eq!(first(&asked, &used, &[("b", 3)].into()), "b", "use comes before instances");
        let equal = mk_node(vec![mk_board("b", &[]), mk_board("a", &[]), mk_board("c", &[])]);
        assert_eq!(first(&asked, &equal, &[("a", 1), ("b", 1)].into()), "c", "instances come before ids");
        assert_eq!(first(&asked, &equal, &nobody), "a");
        let full = mk_node(vec![mk_board("a", &[0]), mk_board("b", &[])]);
        assert_eq!(first(&asked, &full, &[("a", 16)].into()), "b", "a full board comes last");
        assert_eq!(first(&asked, &full, &[("a", 17), ("b", 16)].into()), "a", "load refuses nobody");
    }

    #[test]
    fn a_board_that_would_take_a_bitstream_from_others_comes_after_those_that_would_not() {
        let whole = |id, loaded: &[u32], seconds| DeviceState {
            slots: 1,
            reconfigured_part: ReconfiguredPart::Board,
            usage: Millis::from_secs(seconds),
            ..mk_board(id, loaded)
        };
        let asked = mk_asked(&["sobel"]);
        let nobody = BTreeMap::new();
        let state = mk_node(vec![whole("a", &[1], 3), whole("b", &[], 0), whole("c", &[0], 299)]);
        let choice = choose(&asked, &state, &nobody, 16).unwrap();
        assert_eq!(choice.ranked.iter().map(|rank| rank.id).collect::<Vec<_>>(), ["c", "b", "a"]);
        let full = [("b", 16), ("c", 16)].into();
        assert_eq!(first(&asked, &state, &full), "a", "a board that is full comes last");
    }

    #[test]
    fn the_reason_tells_what_decided_and_what_the_others_lacked() {
        let busy = DeviceState { usage: Millis::from_secs(150), ..mk_board("b1", &[]) };
        let other_kind = DeviceState { board: "s10".into(), ..mk_board("b2", &[]) };
        let sick = DeviceState { health: Health::Unhealthy, ..mk_board("b3", &[0]) };
        let state = mk_node(vec![mk_board("b0", &[0]), busy, other_kind, sick]);
        let asked = Requirement { board: Some("a10".into()), ..mk_asked(&["sobel"]) };
        let text = |boards| {
            let asked = Requirement { boards, ..asked.clone() };
            choose(&asked, &state, &BTreeMap::from([("b0", 1), ("b1", 16)]), 16).unwrap().to_string()
        };
        let lacking = "; not b2: FPGA board does not match; not b3: FPGA device is unhealthy";
        let (first, second) =
            ("b0 (bitstream loaded, 0 % used, 1 container)", "b1 (full, 12.5 % used, 16 containers)");
        assert_eq!(text(1), format!("{first} before {second}{lacking}"));
        assert_eq!(text(2), format!("{first}, {second}{lacking}"));
        let many: Vec<String> = (0..100).map(|number| format!("b{number:02}")).collect();
        let state = mk_node(many.iter().map(|id| mk_board(id, &[])).collect());
        let text = choose(&mk_asked(&[]), &state, &BTreeMap::new(), 16).unwrap().to_string();
        assert!(text.ends_with("b08 (0 % used, 0 containers) and 91 more"), "{text}");
    }

    #[test]
    fn a_digest_on_a_board_of_another_kind_is_told_as_the_reason() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        let mut state =
            mk_node(vec![mk_board("a", &[0]), DeviceState { board: "s10".into(), ..mk_board("b", &[]) }]);
        state.bitstreams[0].digest = Some(fpga_core::node_state::DigestPrefix::from_bytes([0x0a; 16]));
        let text = choose(&mk_asked(&[&digest]), &state, &BTreeMap::new(), 16).unwrap().to_string();
        assert!(text.ends_with("; not b: bitstream is not valid on the FPGA device"), "{text}");
    }

    #[test]
    fn a_burst_spreads_over_idle_boards() {
        let state = mk_node(vec![mk_board("a", &[]), mk_board("b", &[]), mk_board("c", &[])]);
        let mut occupation: BTreeMap<&str, u32> = BTreeMap::new();
        for _ in 0..9 {
            let asked = mk_asked(&["sobel"]);
            let chosen = choose(&asked, &state, &occupation, 16).unwrap().boards().next().unwrap();
            *occupation.entry(chosen).or_default() += 1;
        }
        assert_eq!(occupation, [("a", 3), ("b", 3), ("c", 3)].into());
    }

    #[test]
    fn too_few_boards_are_told_with_the_reason() {
        let sick = DeviceState { health: Health::Unhealthy, ..mk_board("b", &[]) };
        let busy = DeviceState { usage: Millis::from_secs(1200), ..mk_board("c", &[]) };
        let state = mk_node(vec![mk_board("a", &[]), sick, busy]);
        let nobody: BTreeMap<&str, u32> = BTreeMap::new();
        let of = |boards, max_utilization: Option<&str>| {
            let max_utilization = max_utilization.map(|text| text.parse().unwrap());
            let asked = Requirement { boards, max_utilization, ..Requirement::default() };
            let choice = choose(&asked, &state, &nobody, 16).map_err(|shortage| shortage.rejection);
            choice.map(|choice| choice.boards().collect::<Vec<_>>())
        };
        assert_eq!(of(2, None), Ok(vec!["a", "c"]));
        assert_eq!(of(3, None), Err(Rejection::Unhealthy));
        assert_eq!(of(4, None), Err(Rejection::TooFewBoards));
        assert_eq!(of(2, Some("0.9")), Err(Rejection::Utilization));
        assert_eq!(of(1, Some("0.9")), Ok(vec!["a"]));
        let text = Shortage { rejection: Rejection::TooFewBoards, boards: 4 }.to_string();
        assert_eq!(text, "4 boards of this node are wanted: too few FPGA devices meet the requirements");
        let xilinx = Requirement { vendor: Some("xilinx".into()), ..Requirement::default() };
        let none = choose(&xilinx, &state, &nobody, 16);
        assert_eq!(none, Err(Shortage { rejection: Rejection::Vendor, boards: 1 }));
    }

    #[test]
    fn a_board_without_instances_left_refuses_no_container_that_is_on_the_node() {
        let state =
            NodeState { plugin: Some(mk_plugin(&[("a", 16, 16)])), ..mk_node(vec![mk_board("a", &[])]) };
        assert_eq!(first(&mk_asked(&[]), &state, &[("a", 16)].into()), "a");
    }
}
