//! Slot time per slot, by which nodes with different numbers and sizes of boards are compared.

use crate::units::Millis;
use serde::Serialize;
use std::ops::{Add, Sub};

/// Slot time of boards in a window divided by the number of their slots, in microseconds. With up to 1,000 slots the
/// division does not make amounts equal that differ by a millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct PerSlot(pub u64);

impl PerSlot {
    /// `amount` divided by `slots`.
    #[must_use]
    pub fn of(amount: Millis, slots: u32) -> Self {
        match amount {
            Millis::ZERO => Self(0),
            amount => Self(amount.0.saturating_mul(1000) / u64::from(slots.max(1))),
        }
    }

    /// The total slot time of `slots` slots.
    #[must_use]
    pub fn times(self, slots: u32) -> Millis {
        Millis(self.0.saturating_mul(slots.max(1).into()) / 1000)
    }
}

impl Add for PerSlot {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sub for PerSlot {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}
