//! How many devices each job gets, so that deadlines and throughputs are held (Q).
//!
//! A job is many independent actions with one bitstream; its devices are a group that can grow and shrink. [`edf`]
//! and [`controller`] with [`broker`] are two policies for the sizes of the groups, and [`admission`] says who may begin.
//! Nothing here starts an action: applications do that themselves.

pub mod admission;
pub mod broker;
pub mod controller;
pub mod edf;

use std::time::Duration;

/// A job, unique while it lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// What a job asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// All actions done by then.
    Deadline {
        /// By when, on the caller's monotonic clock.
        at: Duration,
        /// How many actions it has.
        actions: u64,
    },
    /// So many actions per second, while it runs.
    Throughput(Rate),
}

/// Actions per second: finite and above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

/// How few and how many devices a job can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    least: u32,
    most: u32,
}

/// Why a goal or limit is none.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum GoalError {
    /// A throughput.
    #[error("a throughput of {0} actions per second is no goal: it must be above 0")]
    Rate(f64),
    /// Limits.
    #[error("at least {least} and at most {most} devices: the most must be at least 1 and the least")]
    Limits {
        /// Least.
        least: u32,
        /// Most.
        most: u32,
    },
}

impl Rate {
    /// That many actions per second.
    ///
    /// # Errors
    /// [`GoalError::Rate`].
    pub fn new(per_second: f64) -> Result<Self, GoalError> {
        if per_second.is_finite() && per_second > 0.0 {
            Ok(Self(per_second))
        } else {
            Err(GoalError::Rate(per_second))
        }
    }

    /// Actions per second.
    #[must_use]
    pub fn per_second(self) -> f64 {
        self.0
    }
}

impl Limits {
    /// Any number of devices, none as well: the job may pause.
    pub const ANY: Self = Self { least: 0, most: u32::MAX };

    /// At least and at most so many.
    ///
    /// # Errors
    /// [`GoalError::Limits`].
    pub fn new(least: u32, most: u32) -> Result<Self, GoalError> {
        if most >= 1 && least <= most {
            Ok(Self { least, most })
        } else {
            Err(GoalError::Limits { least, most })
        }
    }

    /// The least.
    #[must_use]
    pub fn least(self) -> u32 {
        self.least
    }

    /// The most.
    #[must_use]
    pub fn most(self) -> u32 {
        self.most
    }

    /// What these limits make of a number of devices.
    #[must_use]
    pub fn clamp(self, devices: u32) -> u32 {
        devices.clamp(self.least, self.most)
    }
}

/// Gives each job its least, in `order`, as long as there are devices; says how many are left.
fn give_least(
    order: impl Iterator<Item = usize>,
    limits: impl Fn(usize) -> Limits,
    given: &mut [u32],
    devices: u32,
) -> u32 {
    let mut left = devices;
    for index in order {
        if let Some(given) = given.get_mut(index) {
            *given = limits(index).least.min(left);
            left -= *given;
        }
    }
    left
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_and_limits_that_are_none_are_refused() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Rate::new(wrong).is_err());
        }
        assert_eq!(Rate::new(30.0).unwrap().per_second(), 30.0);
        assert!(Limits::new(2, 1).is_err() && Limits::new(0, 0).is_err());
        let limits = Limits::new(1, 3).unwrap();
        assert_eq!([0, 2, 9].map(|devices| limits.clamp(devices)), [1, 2, 3]);
    }
}
