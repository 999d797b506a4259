//! The least load that costs ranks: what is expected of a pod that nothing is known of.
//!
//! Ranks look at order alone, so how much one costs depends on the other candidates: a node loses one when its load comes
//! to lie just above that of one more node which had not been below it.

use super::Expected;
use crate::per_slot::PerSlot;
use crate::units::Millis;

/// An [`Expected`] of boards that are compared by what each of their slots does.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ExpectedPerSlot {
    /// [`Expected::usage`].
    pub usage: PerSlot,
    /// [`Expected::unknown`].
    pub unknown: f64,
    /// [`Expected::shown`].
    pub shown: PerSlot,
}

impl Expected {
    /// The same by slot, where `per_slot` says what an amount of slot time is.
    #[must_use]
    pub fn per_slot(&self, per_slot: impl Fn(Millis) -> PerSlot) -> ExpectedPerSlot {
        ExpectedPerSlot { usage: per_slot(self.usage), unknown: self.unknown, shown: per_slot(self.shown) }
    }
}

/// Loads of candidates with fresh state: what was measured, and for each its expectation, in the same order.
///
/// A node with so many unknown pods, rounded, is put just above so many of the nodes that were not below it. What those
/// pods are shown to have used already counts towards that.
#[must_use]
pub fn loads(measured: &[PerSlot], expected: &[ExpectedPerSlot]) -> Vec<PerSlot> {
    let mut loads: Vec<PerSlot> =
        measured.iter().zip(expected).map(|(measured, expected)| *measured + expected.usage).collect();
    let unknown = |expected: &ExpectedPerSlot| super::whole(expected.unknown).0;
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
fn costing(ranks: u64, from: PerSlot, own: PerSlot, sorted: &[PerSlot]) -> PerSlot {
    let below = sorted.partition_point(|load| *load < from);
    let itself = sorted.partition_point(|load| *load < own);
    let others = sorted.len().saturating_sub(below + 1) as u64;
    let passed = usize::try_from(ranks - 1).map_or(sorted.len(), |passed| below.saturating_add(passed));
    let passed = if passed >= itself { passed.saturating_add(1) } else { passed };
    let above = match sorted.get(passed) {
        Some(load) => *load + PerSlot(1),
        // All are passed: from there on every pod counts, so that such nodes are told apart.
        None => {
            sorted.last().copied().unwrap_or_default() + PerSlot(1) + PerSlot(ranks.saturating_sub(others))
        }
    };
    above.max(from + PerSlot(ranks))
}
