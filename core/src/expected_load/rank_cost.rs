//! The least load that costs ranks: what is expected of a pod that nothing is known of.
//!
//! Ranks look at order alone, so how much one costs depends on the other candidates: a node loses one when its load comes
//! to lie just above that of one more node which had not been below it.

use super::Expected;
use crate::units::Millis;

/// Loads of candidates with fresh state: what was measured, and for each its expectation, in the same order.
///
/// A node with so many unknown pods, rounded, is put just above so many of the nodes that were not below it. What those
/// pods are shown to have used already counts towards that.
#[must_use]
pub fn loads(measured: &[Millis], expected: &[Expected]) -> Vec<Millis> {
    let mut loads: Vec<Millis> =
        measured.iter().zip(expected).map(|(measured, expected)| *measured + expected.usage).collect();
    let unknown = |expected: &Expected| super::whole(expected.unknown).0;
    if expected.iter().all(|expected| unknown(expected) == 0) {
        return loads;
    }
    let mut sorted = loads.clone();
    sorted.sort_unstable();
    for ((load, measured), expected) in loads.iter_mut().zip(measured).zip(expected) {
        let ranks = unknown(expected);
        if ranks > 0 {
            let without = *load - expected.shown.min(*measured);
            *load = (*load).max(costing(ranks, without, *load, &sorted));
        }
    }
    loads
}

/// The least load of a node that lies above `ranks` of the others that are not below `from`. Among `sorted` is the node
/// itself as `own`.
fn costing(ranks: u64, from: Millis, own: Millis, sorted: &[Millis]) -> Millis {
    let below = sorted.partition_point(|load| *load < from);
    let itself = sorted.partition_point(|load| *load < own);
    let others = sorted.len().saturating_sub(below + 1) as u64;
    let passed = usize::try_from(ranks - 1).map_or(sorted.len(), |passed| below.saturating_add(passed));
    let passed = if passed >= itself { passed.saturating_add(1) } else { passed };
    let above = match sorted.get(passed) {
        Some(load) => *load + Millis(1),
        // All are passed: from there on every pod counts, so that such nodes are told apart.
        None => sorted.last().copied().unwrap_or_default() + Millis(1) + Millis(ranks.saturating_sub(others)),
    };
    above.max(from + Millis(ranks))
}
