//! Simulated time: whole microseconds, so that sums are exact and the same everywhere.

use fpga_core::units::Millis;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A duration, or a moment since the begin of the trace, in microseconds. Subtraction saturates at zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The end of time.
    pub const MAX: Self = Self(u64::MAX);
    /// A second.
    pub const SECOND: Self = Self(1_000_000);
    /// A day.
    pub const DAY: Self = Self(86_400 * 1_000_000);

    /// `seconds`, rounded; what is no time at all is zero.
    #[must_use]
    pub fn from_secs(seconds: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let micros = (seconds * 1e6 + 0.5).floor() as u64;
        Self(micros)
    }

    /// `millis`, rounded.
    #[must_use]
    pub fn from_millis(millis: f64) -> Self {
        Self::from_secs(millis / 1e3)
    }

    /// In seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// In whole milliseconds, rounded.
    #[must_use]
    pub fn millis(self) -> Millis {
        Millis(self.0.saturating_add(500) / 1000)
    }

    /// This share of it, rounded.
    #[must_use]
    pub fn part(self, share: f64) -> Self {
        Self::from_secs(self.secs() * share)
    }
}

impl Add for Micros {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Micros {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Micros {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.secs())
    }
}
