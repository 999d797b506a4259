//! What a group asks for.

use crate::asked::Asked;
use crate::error::Error;
use fpga_pool_api::limits::MAX_GROUP_SLOTS;
use fpga_pool_leases::ids::GroupUuid;
use fpga_pool_leases::lease;
use std::ops::RangeInclusive;
use std::time::Duration;

/// What a group is to reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// So many actions are done within a time from the moment at which the broker first hears of the group.
    Deadline {
        /// Number of actions, at least one.
        actions: u64,
        /// Time for all of them, at least a millisecond.
        within: Duration,
    },
    /// So many actions are done in an hour, for as long as the group is open and has actions.
    Throughput {
        /// Actions per hour, at least one.
        actions_per_hour: u64,
    },
}

/// A group that is to be opened: an accelerator with its arguments, a goal, and how many slots the group may have.
#[derive(Debug, Clone)]
pub struct GroupRequest {
    pub(crate) asked: Asked,
    pub(crate) goal: Goal,
    pub(crate) slots: RangeInclusive<u32>,
}

impl GroupRequest {
    /// A group that has between `*slots.start()` and `*slots.end()` slots, at most 1024. With a minimum above 0 the broker
    /// refuses the group if it can't give so many at once, or if fewer are guaranteed to the tenant; with a minimum of 0 the group may pause.
    #[must_use]
    pub fn new(accelerator: impl Into<String>, goal: Goal, slots: RangeInclusive<u32>) -> Self {
        Self { asked: Asked::new(accelerator.into()), goal, slots }
    }

    /// Adds an argument, such as `portfolio`, which is the same for all actions. Its value goes to the device managers
    /// that have the slots, and to nobody else; the library overwrites its copies.
    #[must_use]
    pub fn argument(mut self, name: impl Into<String>, value: &[u8]) -> Self {
        self.asked.add(name.into(), value);
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        let (least, most) = (*self.slots.start(), *self.slots.end());
        if most == 0 || least > most || most > MAX_GROUP_SLOTS {
            return Err(Error::Slots { least, most });
        }
        let is_possible = match self.goal {
            Goal::Deadline { actions, within } => actions > 0 && within >= Duration::from_millis(1),
            Goal::Throughput { actions_per_hour } => actions_per_hour > 0,
        };
        if is_possible { Ok(()) } else { Err(Error::Goal) }
    }

    /// The group as the protocol has it.
    pub(crate) fn group(&self, id: GroupUuid) -> lease::Group {
        let goal = match self.goal {
            Goal::Deadline { actions, within } => lease::Goal::Deadline { actions, within: within.into() },
            Goal::Throughput { actions_per_hour } => lease::Goal::Throughput { actions_per_hour },
        };
        lease::Group { id, goal, least: *self.slots.start(), most: *self.slots.end() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_and_slots_that_no_group_can_have_are_refused() {
        let request = |goal, slots| GroupRequest::new("fft", goal, slots).check();
        let goal = Goal::Throughput { actions_per_hour: 5 };
        assert!(request(goal, 0..=1).is_ok() && request(goal, 3..=1024).is_ok());
        for slots in [0..=0, RangeInclusive::new(2, 1), 0..=1025] {
            assert!(matches!(request(goal, slots), Err(Error::Slots { .. })));
        }
        let deadline = |actions, millis| Goal::Deadline { actions, within: Duration::from_millis(millis) };
        assert!(request(deadline(1, 1), 1..=1).is_ok());
        for goal in [deadline(0, 1), deadline(1, 0), Goal::Throughput { actions_per_hour: 0 }] {
            assert!(matches!(request(goal, 1..=1), Err(Error::Goal)), "{goal:?}");
        }
    }
}
