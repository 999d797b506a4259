//! Moves of functions to other nodes that reduce the expected number of cold starts (S-11). Frequently used functions
//! spread over the nodes and share them with rarely used ones.
//!
//! The gaps between the uses of a node's functions give the expected cold starts ([`fpga_board::reuse`]). Slot time does
//! not count.

pub mod expected;

use fpga_board::reuse::{Pressure, ReuseProfile};

/// Number of functions of a node that are tried, the most frequently used first.
const TRIED: usize = 16;

/// A function on a node.
#[derive(Debug, Clone, PartialEq)]
pub struct Placed {
    /// Number of the function, chosen by the caller.
    pub function: usize,
    /// Index of the function's node.
    pub node: usize,
    /// The function's effect on a node's slots.
    pub profile: ReuseProfile,
}

/// A move of a function to another node.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Move {
    /// Number of the function.
    pub function: usize,
    /// Index of the present node.
    pub from: usize,
    /// Index of the new node.
    pub to: usize,
    /// Cold starts saved per second.
    pub gain: f32,
}

/// Up to `most` moves, each the best after the ones before it, and each saving at least `least_gain` cold starts per
/// second. `slots` has the number of slots of each node.
#[must_use]
pub fn plan(functions: &[Placed], slots: &[u32], most: usize, least_gain: f32) -> Vec<Move> {
    let mut nodes: Vec<Pressure> = slots.iter().map(|slots| Pressure::new(*slots)).collect();
    let mut places: Vec<usize> = functions.iter().map(|function| function.node).collect();
    for function in functions {
        if let Some(node) = nodes.get_mut(function.node) {
            node.add(&function.profile);
        }
    }
    let mut moves: Vec<Move> = Vec::new();
    let mut cold: Vec<f32> = nodes.iter().map(Pressure::cold).collect();
    // The node with the most cold starts first; a node without a useful move is not tried again.
    let mut hopeless = vec![false; nodes.len()];
    while moves.len() < most {
        let worst =
            (0..nodes.len()).filter(|node| !hopeless[*node]).max_by(|a, b| cold[*a].total_cmp(&cold[*b]));
        let Some(from) = worst.filter(|node| cold[*node] >= least_gain) else { break };
        let best =
            best_from(from, functions, &places, &nodes, &cold).filter(|best| best.1.gain >= least_gain);
        let Some((index, best)) = best else {
            hopeless[from] = true;
            continue;
        };
        let profile = &functions[index].profile;
        nodes[from].remove(profile);
        nodes[best.to].add(profile);
        cold[from] = nodes[from].cold();
        cold[best.to] = nodes[best.to].cold();
        places[index] = best.to;
        moves.push(best);
    }
    moves
}

fn best_from(
    from: usize,
    functions: &[Placed],
    places: &[usize],
    nodes: &[Pressure],
    cold: &[f32],
) -> Option<(usize, Move)> {
    let mut here: Vec<usize> = (0..functions.len()).filter(|index| places[*index] == from).collect();
    // The most frequently used first: without a slot to stay in, every use of a function is a cold start.
    here.sort_by(|a, b| {
        functions[*b].profile.cold[0].total_cmp(&functions[*a].profile.cold[0]).then(a.cmp(b))
    });
    let mut best: Option<(usize, Move)> = None;
    for index in here.into_iter().take(TRIED) {
        let profile = &functions[index].profile;
        let mut without = nodes[from].clone();
        without.remove(profile);
        let saved = cold[from] - without.cold();
        for to in (0..nodes.len()).filter(|to| *to != from) {
            let gain = saved - (nodes[to].cold_with(Some(profile)) - cold[to]);
            if best.as_ref().is_none_or(|(_, best)| gain > best.gain) {
                best = Some((index, Move { function: functions[index].function, from, to, gain }));
            }
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_board::reuse::Gaps;
    use fpga_core::units::{Millis, MonotonicTime};

    fn placed(function: usize, node: usize, period: u64) -> Placed {
        let mut gaps = Gaps::default();
        (0..200).for_each(|use_| gaps.used(MonotonicTime(use_ * period)));
        let profile = gaps.profile(gaps.last().unwrap() + Millis(1));
        Placed { function, node, profile }
    }

    #[test]
    fn busy_functions_are_moved_to_where_there_is_room() {
        let crowded: Vec<Placed> = (0..4).map(|function| placed(function, 0, 1_000)).collect();
        let moves = plan(&crowded, &[2, 2], 10, 0.001);
        assert_eq!(moves.len(), 2, "{moves:?}");
        assert!(moves.iter().all(|a_move| (a_move.from, a_move.to) == (0, 1)));
    }

    #[test]
    fn functions_with_enough_slots_are_not_moved() {
        let apart: Vec<Placed> = (0..4).map(|function| placed(function, function % 2, 1_000)).collect();
        assert_eq!(plan(&apart, &[2, 2], 10, 0.001), []);
        assert_eq!(plan(&[], &[], 10, 0.001), []);
    }

    #[test]
    fn no_more_is_moved_than_is_allowed() {
        let crowded: Vec<Placed> = (0..4).map(|function| placed(function, 0, 1_000)).collect();
        assert_eq!(plan(&crowded, &[2, 2], 1, 0.001).len(), 1);
    }
}
