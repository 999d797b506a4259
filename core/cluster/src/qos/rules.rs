//! The rules by which groups pursue their goals: as the paper prints them, or as a shared pool needs them.

/// The rules for the groups of a slot class.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GoalRules {
    /// α: weight of the last period in the estimate of the action time.
    pub smoothing: Smoothing,
    /// How long before its deadline a group wants to be done.
    pub margin: Margin,
    /// How the action time is measured.
    pub action_time: ActionTime,
    /// What a group gets after its deadline.
    pub late: Late,
    /// When a group that needs fewer slots gives them up.
    pub shrinking: Shrinking,
    /// Slots that jobs keep.
    pub floor: Floor,
}

/// α: weight of the last period in the estimate, above 0 and at most 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Smoothing(f64);

/// The share of the time from a group's start to its deadline by which the group wants to be done earlier.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Margin(f64);

/// How the action time (â) is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ActionTime {
    /// Slots given to the group × time / actions, as printed. Slots that the group waits for count as well.
    Given,
    /// Busy slot time / actions, as the device managers count both.
    Busy,
}

/// What a group gets after its deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Late {
    /// All slots that it can get: by the printed formula its goal is infinite.
    Everything,
    /// Its minimum, at least one slot: it has nothing to gain, and others have.
    Minimum,
}

/// When a group that needs fewer slots gives them up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shrinking {
    /// At the end of the period in which it needs fewer.
    AtOnce,
    /// When it needs fewer in two periods after each other, so that groups do not exchange slots in every period.
    AfterTwoPeriods,
}

/// Slots that jobs of the pool keep, so that groups never stop them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Floor {
    /// None: the paper has no such jobs.
    None,
    /// A quarter of the slot class, rounded down, at least one slot.
    Quarter,
}

/// A parameter of the rules is out of range.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum RulesError {
    /// α.
    #[error("{0} is no smoothing factor: it must be above 0 and at most 1")]
    Smoothing(f64),
    /// The margin.
    #[error("{0} is no deadline margin: it must be at least 0 and below 1, e.g. 0.03 for 3 %")]
    Margin(f64),
}

impl GoalRules {
    /// The rules of the paper.
    #[must_use]
    pub fn printed() -> Self {
        Self {
            smoothing: Smoothing::DEFAULT,
            margin: Margin::NONE,
            action_time: ActionTime::Given,
            late: Late::Everything,
            shrinking: Shrinking::AtOnce,
            floor: Floor::None,
        }
    }
}

impl Default for GoalRules {
    /// The rules of a shared pool.
    fn default() -> Self {
        Self {
            smoothing: Smoothing::DEFAULT,
            margin: Margin::DEFAULT,
            action_time: ActionTime::Busy,
            late: Late::Minimum,
            shrinking: Shrinking::AfterTwoPeriods,
            floor: Floor::Quarter,
        }
    }
}

impl Smoothing {
    /// α = 0.5.
    pub const DEFAULT: Self = Self(0.5);

    /// A smoothing factor.
    ///
    /// # Errors
    /// [`RulesError::Smoothing`] unless `alpha` is above 0 and at most 1.
    pub fn new(alpha: f64) -> Result<Self, RulesError> {
        if alpha > 0.0 && alpha <= 1.0 { Ok(Self(alpha)) } else { Err(RulesError::Smoothing(alpha)) }
    }

    pub(super) fn smooth(self, before: f64, now: f64) -> f64 {
        self.0 * now + (1.0 - self.0) * before
    }
}

impl Margin {
    /// No margin: the printed formula, which ends about at the deadline, before or after it.
    pub const NONE: Self = Self(0.0);

    /// 3 %.
    pub const DEFAULT: Self = Self(0.03);

    /// A margin.
    ///
    /// # Errors
    /// [`RulesError::Margin`] unless `share` is at least 0 and below 1.
    pub fn new(share: f64) -> Result<Self, RulesError> {
        if (0.0..1.0).contains(&share) { Ok(Self(share)) } else { Err(RulesError::Margin(share)) }
    }

    pub(super) fn share(self) -> f64 {
        self.0
    }
}

impl Floor {
    /// Number of slots that jobs keep of a class with `slots` slots.
    #[must_use]
    pub fn slots(self, slots: u32) -> u32 {
        match self {
            Self::None => 0,
            Self::Quarter => (slots / 4).max(1).min(slots),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_keep_a_quarter_of_each_class_and_at_least_one_slot() {
        let floors = [0, 1, 3, 4, 7, 8, 100].map(|slots| Floor::Quarter.slots(slots));
        assert_eq!(floors, [0, 1, 1, 1, 1, 2, 25]);
        assert_eq!(Floor::None.slots(8), 0);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        assert!(
            Smoothing::new(0.0).is_err() && Smoothing::new(1.1).is_err() && Smoothing::new(f64::NAN).is_err()
        );
        assert!(Margin::new(-0.01).is_err() && Margin::new(1.0).is_err() && Margin::new(f64::NAN).is_err());
        assert_eq!(Margin::new(0.0), Ok(Margin::NONE));
    }
}
