//! Simulated time in whole microseconds, so that sums are exact and the same on every machine.

use fpga_core::units::Millis;
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// An instant: microseconds since the beginning of the trace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SimTime(pub u64);

/// A duration in microseconds. Subtraction saturates at zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Micros(pub u64);

impl Micros {
    /// Zero microseconds.
    pub const ZERO: Self = Self(0);
    /// One second.
    pub const SECOND: Self = Self(1_000_000);
    /// One day.
    pub const DAY: Self = Self(86_400 * 1_000_000);

    /// `seconds`, rounded to microseconds; zero if negative or not a number.
    #[must_use]
    pub fn from_secs(seconds: f64) -> Self {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a cast saturates")]
        let micros = (seconds * 1e6 + 0.5).floor() as u64;
        Self(micros)
    }

    /// `millis`, rounded to microseconds; zero if negative or not a number.
    #[must_use]
    pub fn from_millis(millis: f64) -> Self {
        Self::from_secs(millis / 1e3)
    }

    /// The duration in seconds.
    #[must_use]
    pub fn secs(self) -> f64 {
        self.0 as f64 / 1e6
    }

    /// The duration in whole milliseconds, rounded.
    #[must_use]
    pub fn millis(self) -> Millis {
        Millis(self.0.saturating_add(500) / 1000)
    }

    /// The product of this duration and `share`, rounded.
    #[must_use]
    pub fn part(self, share: f64) -> Self {
        Self::from_secs(self.secs() * share)
    }
}

impl SimTime {
    /// The beginning of the trace.
    pub const BEGIN: Self = Self(0);
    /// The latest instant.
    pub const END: Self = Self(u64::MAX);

    /// The instant `seconds` after the beginning, rounded; the beginning if `seconds` is negative.
    #[must_use]
    pub fn from_secs(seconds: f64) -> Self {
        Self::BEGIN + Micros::from_secs(seconds)
    }

    /// Seconds since the beginning.
    #[must_use]
    pub fn secs(self) -> f64 {
        (self - Self::BEGIN).secs()
    }

    /// Whole milliseconds since the beginning, rounded.
    #[must_use]
    pub fn millis(self) -> Millis {
        (self - Self::BEGIN).millis()
    }
}

impl Add<Micros> for SimTime {
    type Output = Self;

    fn add(self, duration: Micros) -> Self {
        Self(self.0.saturating_add(duration.0))
    }
}

impl AddAssign<Micros> for SimTime {
    fn add_assign(&mut self, duration: Micros) {
        *self = *self + duration;
    }
}

/// The instant that much earlier; not before the beginning of the trace.
impl Sub<Micros> for SimTime {
    type Output = Self;

    fn sub(self, duration: Micros) -> Self {
        Self(self.0.saturating_sub(duration.0))
    }
}

/// The duration since an earlier instant; zero if `earlier` is later.
impl Sub for SimTime {
    type Output = Micros;

    fn sub(self, earlier: Self) -> Micros {
        Micros(self.0.saturating_sub(earlier.0))
    }
}

impl fmt::Display for SimTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} s", self.secs())
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
