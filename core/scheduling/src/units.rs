//! Times as numbers whose type tells unit and meaning.
//!
//! Durations and moments have different types, and so have the moments of different clocks:
//! - [`Millis`]: a duration or an age.
//! - [`MonotonicTime`]: a moment of a monotonic clock. Ages and deadlines are counted on it.
//! - [`WallTime`]: a moment since the Unix epoch. Events, annotations and the API server's timestamps have it. A wall
//!   clock may step, so no state is ordered or aged by it.
//!
//! A moment minus a moment is a duration; a moment plus or minus a duration is a moment of the same clock. All
//! arithmetic saturates.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A duration in milliseconds.
///
/// Subtraction saturates at zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A moment of a monotonic clock, in milliseconds since the start of that clock. Each process has its own clock, so a
/// moment means nothing to another process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonotonicTime(pub u64);

/// A moment of a machine's wall clock, in milliseconds since the Unix epoch. Wall clocks may step, and differ between
/// machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub u64);

/// One reading of both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// Reading of the monotonic clock.
    pub now: MonotonicTime,
    /// Reading of the wall clock.
    pub wall: WallTime,
}

impl Millis {
    /// The empty duration.
    pub const ZERO: Self = Self(0);

    /// `seconds` as milliseconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }
}

impl MonotonicTime {
    /// The start of the clock.
    pub const START: Self = Self(0);
    /// A moment later than any other.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment `elapsed` after the start of the clock.
    #[must_use]
    pub fn after(elapsed: std::time::Duration) -> Self {
        Self::START + elapsed.into()
    }
}

impl WallTime {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(0);

    /// The moment of a [`std::time::SystemTime`]; a time before 1970 becomes the epoch.
    #[must_use]
    pub fn of(time: std::time::SystemTime) -> Self {
        Self::UNIX_EPOCH + time.duration_since(std::time::UNIX_EPOCH).unwrap_or_default().into()
    }
}

impl Add for Millis {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Millis {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sub for Millis {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

macro_rules! moments {
    ($($clock:ty),+) => {$(
        impl Add<Millis> for $clock {
            type Output = Self;

            fn add(self, duration: Millis) -> Self {
                Self(self.0.saturating_add(duration.0))
            }
        }

        impl AddAssign<Millis> for $clock {
            fn add_assign(&mut self, duration: Millis) {
                *self = *self + duration;
            }
        }

        impl Sub<Millis> for $clock {
            type Output = Self;

            fn sub(self, duration: Millis) -> Self {
                Self(self.0.saturating_sub(duration.0))
            }
        }

        impl Sub for $clock {
            type Output = Millis;

            /// The time from `earlier` to this moment; none if `earlier` is later.
            fn sub(self, earlier: Self) -> Millis {
                Millis(self.0.saturating_sub(earlier.0))
            }
        }
    )+};
}

moments!(MonotonicTime, WallTime);

impl From<std::time::Duration> for Millis {
    fn from(duration: std::time::Duration) -> Self {
        Self(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
    }
}

impl From<Millis> for std::time::Duration {
    fn from(millis: Millis) -> Self {
        Self::from_millis(millis.0)
    }
}

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.0)
    }
}

/// Mixing clocks, or moments and durations, does not compile.
///
/// ```compile_fail,E0277
/// use fpga_core::units::{MonotonicTime, WallTime};
/// let age = WallTime(5) - MonotonicTime(3);
/// ```
/// ```compile_fail,E0308
/// use fpga_core::units::WallTime;
/// let sum = WallTime(5) + WallTime(3);
/// ```
/// ```compile_fail,E0308
/// use fpga_core::units::{Millis, MonotonicTime};
/// let late = MonotonicTime(5) > Millis(3);
/// ```
#[cfg(doctest)]
struct ClocksAreNotMixed;
