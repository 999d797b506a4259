//! The least load that costs a node ranks: the expected usage of a pod without a known mean.
//!
//! Ranks depend on the order of the loads alone, so the cost of a rank depends on the other candidates. A node loses
//! one rank when its load exceeds that of one more node whose load was not below it before.

use super::Expected;
use crate::per_slot::PerSlot;
use crate::units::Millis;

/// An [`Expected`] per slot of the boards.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct ExpectedPerSlot {
    /// [`Expected::usage`] per slot.
    pub usage: PerSlot,
    /// [`Expected::unknown`].
    pub unknown: f64,
    /// [`Expected::shown`] per slot.
    pub shown: PerSlot,
}

impl Expected {
    /// Whether pods without a known mean are expected: their usage depends on the other candidates, see [`loads`].
    pub(crate) fn costs_ranks(&self) -> bool {
        self.unknown >= 0.5
    }

    /// The expectation per slot; `per_slot` converts an amount of slot time.
    #[must_use]
    pub(crate) fn per_slot(&self, per_slot: impl Fn(Millis) -> PerSlot) -> ExpectedPerSlot {
        ExpectedPerSlot { usage: per_slot(self.usage), unknown: self.unknown, shown: per_slot(self.shown) }
    }
}

/// The loads of the candidates with fresh state, from the measured and the expected usage of each, in the same order.
///
/// A node with n pods without a known mean (rounded) gets a load just above n of the nodes whose load was not below
/// its own. Usage that these pods have caused already counts towards that.
#[must_use]
pub(crate) fn loads(measured: &[PerSlot], expected: &[ExpectedPerSlot]) -> Vec<PerSlot> {
    let mut loads: Vec<PerSlot> =
        measured.iter().zip(expected).map(|(measured, expected)| *measured + expected.usage).collect();
    let unknown = |expected: &ExpectedPerSlot| super::whole(expected.unknown).0;
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

/// The least load above `ranks` of the other nodes whose load is not below `from`. `sorted` has the loads of all
/// nodes, including that of the node itself, `own`.
fn costing(ranks: u64, from: PerSlot, own: PerSlot, sorted: &[PerSlot]) -> PerSlot {
    let below = sorted.partition_point(|load| *load < from);
    let itself = sorted.partition_point(|load| *load < own);
    let others = sorted.len().saturating_sub(below + 1) as u64;
    let passed = usize::try_from(ranks - 1).map_or(sorted.len(), |passed| below.saturating_add(passed));
    let passed = if passed >= itself { passed.saturating_add(1) } else { passed };
    let above = match sorted.get(passed) {
        Some(load) => *load + PerSlot(1),
        // The load exceeds all others: from here on each pod adds 1, so that such nodes differ.
        None => {
            sorted.last().copied().unwrap_or_default() + PerSlot(1) + PerSlot(ranks.saturating_sub(others))
        }
    };
    above.max(from + PerSlot(ranks))
}
