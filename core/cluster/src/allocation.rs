//! The boards of a node that a container gets: the query and the order of Algorithm 1 (B-7).
//!
//! The query lets boards pass that meet the pod's requirement. The order prefers a board that has the bitstreams in its
//! slots, then the least used one, then the one with the fewest instances, and at last the first id. Without the number
//! of instances all pods of a burst would go to one board, because none of them has used it yet.

use fpga_core::matching::{Rejection, matching_boards};
use fpga_core::node_state::{DeviceState, NodeState};
use fpga_core::requirement::Requirement;
use std::cmp::Reverse;

/// A container's wish.
#[derive(Debug, Clone, Copy)]
pub struct Wish<'a> {
    /// What each of the boards must meet.
    pub requirement: &'a Requirement,
    /// Number of different boards.
    pub boards: u32,
}

/// The instances on the boards of a node.
pub trait Occupation {
    /// Number of instances that the board with this id has. The instance that asks does not count.
    fn instances(&self, board: &str) -> u32;
}

/// The reason why a container gets no boards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Shortage {
    /// No board passes the query.
    #[error("{0}")]
    None(Rejection),
    /// Fewer boards than wanted pass the query.
    #[error("{wanted} boards are wanted, and {fitting} of this node meet the requirement")]
    TooFew {
        /// Number of boards wanted.
        wanted: u32,
        /// Number of boards that pass the query.
        fitting: usize,
    },
}

/// The ids of the boards that a container gets, best first. A board with `limit` instances or more is taken only where
/// no other one is left: the load never refuses a container.
///
/// # Errors
/// [`Shortage`], if not enough boards pass the query.
pub fn choose<'s>(
    wish: Wish<'_>,
    state: &'s NodeState,
    occupation: &impl Occupation,
    limit: u32,
) -> Result<Vec<&'s str>, Shortage> {
    let fitting = matching_boards(wish.requirement, state).map_err(Shortage::None)?;
    let wanted = usize::try_from(wish.boards).unwrap_or(usize::MAX);
    if fitting.len() < wanted {
        return Err(Shortage::TooFew { wanted: wish.boards, fitting: fitting.len() });
    }
    let mut boards: Vec<_> = fitting.into_iter().filter_map(|number| state.devices.get(number)).collect();
    boards.sort_by_cached_key(|board| {
        let instances = occupation.instances(&board.id);
        let is_full = instances >= limit;
        let resident = Reverse(resident(wish.requirement, state, board));
        (is_full, resident, per_mille_used(state, board), instances, &board.id)
    });
    Ok(boards.into_iter().take(wanted).map(|board| board.id.as_str()).collect())
}

/// Number of the requirement's bitstreams that are in a slot of the board.
fn resident(requirement: &Requirement, state: &NodeState, board: &DeviceState) -> usize {
    requirement.bitstreams.iter().filter(|id| state.holds(board, id).is_yes()).count()
}

/// Used part of the slot time of the state's window.
fn per_mille_used(state: &NodeState, board: &DeviceState) -> u64 {
    let capacity = state.window.0.saturating_mul(board.slots.into()).max(1);
    board.usage.0.saturating_mul(1000) / capacity
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::device::Health;
    use fpga_core::node_state::{Buckets, LeftOut, RecentBitstream};
    use fpga_core::units::{Millis, WallTime};
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    impl Occupation for BTreeMap<&str, u32> {
        fn instances(&self, board: &str) -> u32 {
            self.get(board).copied().unwrap_or(0)
        }
    }

    /// An idle, healthy board with four slots and the bitstreams with these indexes.
    fn mk_board(id: &str, loaded: &[u32]) -> DeviceState {
        DeviceState {
            id: id.into(),
            vendor: "intel".into(),
            platform: String::new(),
            board: "a10".into(),
            shell: "1".into(),
            slots: 4,
            loaded: loaded.to_vec(),
            usage: Millis::ZERO,
            reconfiguration: Millis::ZERO,
            queued: 0,
            health: Health::Healthy,
        }
    }

    /// A node with these boards; bitstream 0 is `sobel`, 1 is `mm`.
    fn mk_node(boards: Vec<DeviceState>) -> NodeState {
        let bitstream = |name: &str| RecentBitstream {
            name: Some(name.into()),
            digest: None,
            last_used_ago: Millis::ZERO,
        };
        NodeState {
            boot: 1,
            seq: 1,
            heartbeat: Millis::from_secs(60),
            measured_at: WallTime(0),
            window: Millis::from_secs(60),
            usage: Millis::ZERO,
            reconfiguration: Millis::ZERO,
            devices: boards,
            bitstreams: vec![bitstream("sobel"), bitstream("mm")],
            buckets: Buckets {
                bucket: Millis::from_secs(10),
                usage: Vec::new(),
                reconfiguration: Vec::new(),
            },
            left_out: LeftOut::default(),
        }
    }

    fn asks_for(bitstream: &str) -> Requirement {
        Requirement { bitstreams: vec![bitstream.parse().unwrap()], ..Requirement::default() }
    }

    fn first(requirement: &Requirement, state: &NodeState, occupation: &BTreeMap<&str, u32>) -> String {
        choose(Wish { requirement, boards: 1 }, state, occupation, 16).unwrap()[0].to_owned()
    }

    #[test]
    fn each_step_of_the_order_decides_where_the_steps_before_it_are_equal() {
        let busy = |id, seconds| DeviceState { usage: Millis::from_secs(seconds), ..mk_board(id, &[]) };
        let asked = asks_for("sobel");
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
            let asked = asks_for("sobel");
            let chosen = choose(Wish { requirement: &asked, boards: 1 }, &state, &occupation, 16).unwrap()[0];
            *occupation.entry(chosen).or_default() += 1;
        }
        assert_eq!(occupation, [("a", 3), ("b", 3), ("c", 3)].into());
    }

    #[test]
    fn too_few_boards_are_told_with_the_reason() {
        let sick = DeviceState { health: Health::Unhealthy, ..mk_board("b", &[]) };
        let state = mk_node(vec![mk_board("a", &[]), sick]);
        let nobody: BTreeMap<&str, u32> = BTreeMap::new();
        let any = Requirement::default();
        let two = Wish { requirement: &any, boards: 2 };
        assert_eq!(choose(two, &state, &nobody, 16), Err(Shortage::TooFew { wanted: 2, fitting: 1 }));
        let xilinx = Requirement { vendor: Some("xilinx".into()), ..Requirement::default() };
        let one = Wish { requirement: &xilinx, boards: 1 };
        assert_eq!(choose(one, &state, &nobody, 16), Err(Shortage::None(Rejection::Vendor)));
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
                ..Requirement::default()
            };
            let occupation: BTreeMap<&str, u32> = IDS.into_iter().zip(instances).collect();
            let fits = |board: &&DeviceState| board.health == Health::Healthy && board.slots >= slots
                && requirement.vendor.as_deref().is_none_or(|vendor| vendor == board.vendor);
            let fitting: Vec<&str> = state.devices.iter().filter(fits).map(|board| board.id.as_str()).collect();
            match choose(Wish { requirement: &requirement, boards: wanted }, &state, &occupation, 16) {
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
