//! Allocation of devices to jobs with a deadline or a throughput goal (Q).
//!
//! A job consists of many independent actions with one bitstream; its devices form a group that can grow and shrink
//! . [`edf`] is one policy for the sizes of the groups, [`controller`] with [`broker`] another; [`admission`]
//! decides which jobs may start. [`groups`] divides the slots of one class between groups and the jobs of the pool, by
//! the paper's [`rules`] or by those of a shared pool. Applications start the actions themselves.

pub mod admission;
pub mod broker;
pub mod controller;
mod division;
pub mod edf;
pub mod groups;
pub mod rules;

use std::time::Duration;

/// Id of a job, unique while the job lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(pub u64);

/// The goal of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// All actions are done by a deadline.
    Deadline {
        /// The deadline, on the caller's monotonic clock.
        at: Duration,
        /// Number of actions.
        actions: u64,
    },
    /// A number of actions per second while the job runs.
    Throughput(Rate),
}

/// Actions per second, finite and above 0.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub struct Rate(f64);

/// The minimum and maximum number of devices that a job can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    least: u32,
    most: u32,
}

/// The reason why a goal or limits are invalid.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum GoalError {
    /// The throughput is not above 0, or not finite.
    #[error("a throughput of {0} actions per second is no goal: it must be above 0")]
    Rate(f64),
    /// The maximum is 0 or below the minimum.
    #[error("at least {least} and at most {most} devices: the most must be at least 1 and the least")]
    Limits {
        /// Minimum.
        least: u32,
        /// Maximum.
        most: u32,
    },
}

impl Rate {
    /// A rate of `per_second` actions per second.
    ///
    /// # Errors
    /// [`GoalError::Rate`] unless the rate is finite and above 0.
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
    /// Any number of devices, including 0: the job may pause.
    pub const ANY: Self = Self { least: 0, most: u32::MAX };

    /// Limits from a minimum and a maximum.
    ///
    /// # Errors
    /// [`GoalError::Limits`] if `most` is 0 or below `least`.
    pub fn new(least: u32, most: u32) -> Result<Self, GoalError> {
        if most >= 1 && least <= most {
            Ok(Self { least, most })
        } else {
            Err(GoalError::Limits { least, most })
        }
    }

    /// Minimum number of devices.
    #[must_use]
    pub fn least(self) -> u32 {
        self.least
    }

    /// Maximum number of devices.
    #[must_use]
    pub fn most(self) -> u32 {
        self.most
    }

    /// Clamps a number of devices to these limits.
    #[must_use]
    pub fn clamp(self, devices: u32) -> u32 {
        devices.clamp(self.least, self.most)
    }
}

/// Gives each job its minimum, in `order`, while devices are left. Returns the number of devices left.
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
    fn invalid_goals_and_limits_are_refused() {
        for wrong in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Rate::new(wrong).is_err());
        }
        assert_eq!(Rate::new(30.0).unwrap().per_second(), 30.0);
        assert!(Limits::new(2, 1).is_err() && Limits::new(0, 0).is_err());
        let limits = Limits::new(1, 3).unwrap();
        assert_eq!([0, 2, 9].map(|devices| limits.clamp(devices)), [1, 2, 3]);
    }
}
