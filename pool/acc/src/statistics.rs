//! How far a group is, and whether it will reach its goal.

use crate::goal::Goal;
use std::fmt;
use std::time::Duration;

/// How far a group is.
#[derive(Debug, Clone, PartialEq)]
pub struct Statistics {
    /// The group's goal.
    pub goal: Goal,
    /// Time since the broker first heard of the group; 0 before.
    pub elapsed: Duration,
    /// Actions that wait for a slot.
    pub waiting: u64,
    /// Actions that were sent to a slot and have not ended.
    pub under_way: u64,
    /// Actions whose output is there.
    pub done: u64,
    /// Actions that ended with an error, or were given up.
    pub failed: u64,
    /// How often an action was sent again, since its slot was lost or taken away before the action had run.
    pub repeated: u64,
    /// Slots that the group has.
    pub slots: u32,
    /// Slots that the group has lost without being asked: their managers died, or their boards failed.
    pub lost_slots: u64,
    /// Bytes of the input of actions that are done.
    pub input_bytes: u64,
    /// Bytes of their output.
    pub output_bytes: u64,
    /// What the group will do with the slots that it has. `None` until the first actions have been done for a second,
    /// and while the group has no slot.
    pub forecast: Option<Forecast>,
    /// Why the group has no more slots, for people; empty if it has all that it may have.
    pub waits: String,
}

/// What a group will do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Forecast {
    /// The last action that the deadline asks for is done so long after the group's start; if all are done, the time
    /// that they have taken.
    Done {
        /// Time from the start.
        after: Duration,
        /// The goal.
        within: Duration,
    },
    /// So many actions are done in an hour if actions always wait.
    Throughput {
        /// Actions per hour.
        actions_per_hour: u64,
        /// The goal.
        wanted: u64,
    },
}

impl Statistics {
    pub(crate) fn new(goal: Goal) -> Self {
        Self {
            goal,
            elapsed: Duration::ZERO,
            waiting: 0,
            under_way: 0,
            done: 0,
            failed: 0,
            repeated: 0,
            slots: 0,
            lost_slots: 0,
            input_bytes: 0,
            output_bytes: 0,
            forecast: None,
            waits: "no broker has answered yet".to_owned(),
        }
    }

    /// Number of actions that have ended.
    #[must_use]
    pub fn ended(&self) -> u64 {
        self.done + self.failed
    }
}

impl Forecast {
    /// Whether the goal is reached if it comes as forecast.
    #[must_use]
    pub fn reaches_goal(&self) -> bool {
        match self {
            Self::Done { after, within } => after <= within,
            Self::Throughput { actions_per_hour, wanted } => actions_per_hour >= wanted,
        }
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { done, failed, waiting, under_way, slots, .. } = self;
        write!(f, "{done} done, {failed} failed, {waiting} waiting, {under_way} under way in {slots} slots")?;
        match &self.forecast {
            Some(forecast) => write!(f, "; {forecast}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Forecast {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done { after, within } => {
                write!(f, "done after {:.1} s of {:.1} s", after.as_secs_f64(), within.as_secs_f64())
            }
            Self::Throughput { actions_per_hour, wanted } => {
                write!(f, "{actions_per_hour} actions an hour of {wanted}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forecast_is_held_against_its_goal() {
        let done = |after: u64| Forecast::Done {
            after: Duration::from_secs(after),
            within: Duration::from_secs(50),
        };
        assert!(done(50).reaches_goal() && !done(51).reaches_goal());
        let hour = |actions_per_hour| Forecast::Throughput { actions_per_hour, wanted: 60 };
        assert!(hour(60).reaches_goal() && !hour(59).reaches_goal());
        assert_eq!(done(5).to_string(), "done after 5.0 s of 50.0 s");
    }
}
