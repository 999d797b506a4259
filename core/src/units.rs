//! Time as a number with its unit and its meaning in the type.
//!
//! A duration is no moment, and the moments of two clocks are not to be compared:
//! - [`Millis`]: how long something takes, or how old something is.
//! - [`MonotonicTime`]: a moment of a clock that only goes forward. Ages and deadlines are counted on it.
//! - [`WallTime`]: a moment since the Unix epoch. It comes in and goes out (events, annotations, dates of the API
//!   server) and may step, so nothing is kept by it.
//!
//! The only arithmetic is that of moments: moment − moment is a duration, moment ± duration is a moment of the same
//! clock. All of it saturates.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A duration in milliseconds.
///
/// Subtraction saturates at zero: clocks jump, durations don't go below nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Millis(pub u64);

/// A moment of a clock that only goes forward, in milliseconds since that clock began. Each process has its own clock:
/// such a moment means nothing to another process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MonotonicTime(pub u64);

/// A moment of a machine's wall clock, in milliseconds since the Unix epoch. Wall clocks step, and differ between
/// machines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct WallTime(pub u64);

/// One reading of both clocks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moment {
    /// The clock that only goes forward.
    pub now: MonotonicTime,
    /// The wall clock.
    pub wall: WallTime,
}

impl Millis {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// `seconds` as milliseconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1000))
    }
}

impl MonotonicTime {
    /// When the clock began.
    pub const START: Self = Self(0);
    /// A moment that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The moment when the clock had run for `elapsed`.
    #[must_use]
    pub fn after(elapsed: std::time::Duration) -> Self {
        Self::START + elapsed.into()
    }
}

impl WallTime {
    /// 1970-01-01T00:00:00Z.
    pub const UNIX_EPOCH: Self = Self(0);

    /// The moment of a [`std::time::SystemTime`]; what lies before 1970 is taken for the epoch.
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

/// The mistakes that the types are for do not compile.
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
