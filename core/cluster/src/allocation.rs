//! The boards of a node that a container gets: the query and the order of Algorithm 1 (B-7).
//!
//! The query lets boards pass that meet the pod's requirement. The order prefers a board that has the bitstreams in its
//! slots, then the least used one, then the one with the fewest instances, and at last the first id. Without the number
//! of instances all pods of a burst would go to one board, because none of them has used it yet.

use fpga_core::matching::{Rejection, matching_boards};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_core::requirement::Requirement;
use std::cmp::Reverse;

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

/// The ids of the boards that a container gets, best first: as many different ones as it requires. A board with `limit`
/// instances or more is taken only where no other one is left: the number of containers never refuses one.
///
/// # Errors
/// [`Shortage`], if not enough boards pass the query.
pub fn choose<'s>(
    requirement: &Requirement,
    state: &'s NodeState,
    occupation: &impl Occupation,
    limit: u32,
) -> Result<Vec<&'s str>, Shortage> {
    let wanted = requirement.boards.max(1);
    let fitting =
        matching_boards(requirement, state).map_err(|rejection| Shortage { rejection, boards: wanted })?;
    let mut boards: Vec<_> = fitting.into_iter().filter_map(|number| state.devices.get(number)).collect();
    boards.sort_by_cached_key(|board| {
        let instances = occupation.instances(&board.id);
        let is_full = instances >= limit;
        let resident = Reverse(resident(requirement, state, board));
        (is_full, resident, state.utilization(board), instances, &board.id)
    });
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    Ok(boards.into_iter().take(wanted).map(|board| board.id.as_str()).collect())
}

/// Number of the requirement's bitstreams that are in a slot of the board.
fn resident(requirement: &Requirement, state: &NodeState, board: &DeviceState) -> usize {
    requirement.bitstreams.iter().filter(|id| state.holds(board, id).is_yes()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::device::Health;
    use fpga_core::fixtures::{mk_asked, mk_bitstream, mk_board, mk_plugin, mk_state};
    use fpga_core::units::Millis;
    use proptest::prelude::*;
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
        choose(requirement, state, occupation, 16).unwrap()[0].to_owned()
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
    fn a_burst_spreads_over_idle_boards() {
        let state = mk_node(vec![mk_board("a", &[]), mk_board("b", &[]), mk_board("c", &[])]);
        let mut occupation: BTreeMap<&str, u32> = BTreeMap::new();
        for _ in 0..9 {
            let asked = mk_asked(&["sobel"]);
            let chosen = choose(&asked, &state, &occupation, 16).unwrap()[0];
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
            choose(&asked, &state, &nobody, 16).map_err(|shortage| shortage.rejection)
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

    proptest! {
        #[test]
        fn no_board_is_given_that_violates_the_query(
            kinds in prop::collection::vec((0_usize..2, any::<bool>(), 1_u32..5, 0_u64..400), 0..8),
            wanted in 1_u32..4, vendor in 0_usize..3, slots in 1_u32..5,
            instances in prop::collection::vec(0_u32..20, 8),
        ) {
            const VENDORS: [&str; 2] = ["intel", "xilinx"];
            const IDS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
            let boards = kinds.iter().zip(IDS).map(|((vendor, healthy, slots, usage), id)| DeviceState {
                vendor: VENDORS[*vendor].into(),
                health: if *healthy { Health::Healthy } else { Health::Unhealthy },
                slots: *slots,
                usage: Millis::from_secs(*usage),
                ..mk_board(id, &[])
            });
            let state = mk_node(boards.collect());
            let requirement = Requirement {
                vendor: VENDORS.get(vendor).map(|vendor| (*vendor).to_owned()),
                slots,
                boards: wanted,
                ..Requirement::default()
            };
            let occupation: BTreeMap<&str, u32> = IDS.into_iter().zip(instances).collect();
            let fits = |board: &&DeviceState| board.health == Health::Healthy && board.slots >= slots
                && requirement.vendor.as_deref().is_none_or(|vendor| vendor == board.vendor);
            let fitting: Vec<&str> = state.devices.iter().filter(fits).map(|board| board.id.as_str()).collect();
            match choose(&requirement, &state, &occupation, 16) {
                Ok(chosen) => {
                    prop_assert_eq!(chosen.len(), wanted as usize);
                    prop_assert!(chosen.iter().all(|id| fitting.contains(id)));
                    let mut different = chosen.clone();
                    different.sort_unstable();
                    different.dedup();
                    prop_assert_eq!(different.len(), chosen.len());
                    let full_is_taken = chosen.iter().any(|id| occupation[id] >= 16);
                    let free_is_left = fitting.iter().any(|id| !chosen.contains(id) && occupation[id] < 16);
                    prop_assert!(!(full_is_taken && free_is_left));
                }
                Err(_) => prop_assert!(fitting.len() < wanted as usize),
            }
        }
    }
}
