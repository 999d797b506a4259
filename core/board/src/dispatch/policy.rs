//! The policies by which a device manager chooses between the sessions that wait (T-1), and each tenant's share.
//!
//! `chooser` makes the choice. The caller reads the rules from flags or a file.

use super::Tenant;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// Maximum weight: with more, light tenants would wait for a very long time.
pub const MAX_WEIGHT: u32 = 10_000;

/// How to choose between sessions. No policy changes the order of one session's own tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum DispatchPolicy {
    /// First in, first out, by arrival at the dispatch.
    #[default]
    Fifo,
    /// One task of each tenant in turn, whatever its duration.
    RoundRobin,
    /// Device time in proportion to the weights (deficit round-robin): a turn lasts weight × quantum.
    DeficitRoundRobin,
    /// The highest priority first. Waiting raises the priority, so that no task starves.
    Priority,
    /// The shortest expected time first: the mean that the profile has for the task's kind, less an eighth of the
    /// time that the task has waited, so that no task starves.
    ShortestFirst,
    /// The earliest deadline first: arrival plus the tenant's [`Share::deadline`].
    EarliestDeadline,
}

/// The text names no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no policy; write `fifo`, `round-robin`, `drr` (deficit round-robin by device time), `priority`, `sjf` \
     (shortest job first) or `edf` (earliest deadline first)"
)]
pub struct UnknownPolicy(String);

/// A tenant's share of the device. Each policy reads only the field made for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Weight, for [`DispatchPolicy::DeficitRoundRobin`].
    pub weight: Weight,
    /// Priority, for [`DispatchPolicy::Priority`]; the greatest goes first.
    pub priority: u8,
    /// Time after its arrival by which a task should have begun, for [`DispatchPolicy::EarliestDeadline`].
    pub deadline: Duration,
}

/// A share of the device's time relative to the other tenants' weights: 1 to [`MAX_WEIGHT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(NonZeroU32);

/// The number is outside 1 to [`MAX_WEIGHT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no weight; write 1 to {MAX_WEIGHT}")]
pub struct InvalidWeight(u32);

/// The policy of a device manager with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchRules {
    /// How to choose between sessions.
    pub policy: DispatchPolicy,
    /// Device time that a weight of 1 gets in a turn of [`DispatchPolicy::DeficitRoundRobin`].
    pub quantum: Duration,
    /// How long a task waits until its priority is one higher under [`DispatchPolicy::Priority`].
    pub ageing: Duration,
    /// The share of tenants that are not listed.
    pub default: Share,
    /// The shares of the listed tenants.
    pub tenants: BTreeMap<Tenant, Share>,
}

impl DispatchPolicy {
    /// All policies.
    pub const ALL: [Self; 6] = [
        Self::Fifo,
        Self::RoundRobin,
        Self::DeficitRoundRobin,
        Self::Priority,
        Self::ShortestFirst,
        Self::EarliestDeadline,
    ];

    /// The policy's name on the command line.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::RoundRobin => "round-robin",
            Self::DeficitRoundRobin => "drr",
            Self::Priority => "priority",
            Self::ShortestFirst => "sjf",
            Self::EarliestDeadline => "edf",
        }
    }
}

impl FromStr for DispatchPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text).ok_or_else(|| UnknownPolicy(text.into()))
    }
}

impl fmt::Display for DispatchPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Weight {
    /// The least weight, 1.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// A weight of `weight`.
    ///
    /// # Errors
    /// [`InvalidWeight`] for 0 and for more than [`MAX_WEIGHT`].
    pub fn new(weight: u32) -> Result<Self, InvalidWeight> {
        match NonZeroU32::new(weight) {
            Some(weight) if weight.get() <= MAX_WEIGHT => Ok(Self(weight)),
            _ => Err(InvalidWeight(weight)),
        }
    }

    /// The weight as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl Default for Share {
    /// Weight 1, priority 0, a deadline of 1 s.
    fn default() -> Self {
        Self { weight: Weight::ONE, priority: 0, deadline: Duration::from_secs(1) }
    }
}

impl Default for DispatchRules {
    /// First in, first out; all tenants have the same share.
    fn default() -> Self {
        Self {
            policy: DispatchPolicy::default(),
            quantum: Duration::from_millis(1),
            ageing: Duration::from_millis(100),
            default: Share::default(),
            tenants: BTreeMap::new(),
        }
    }
}

impl DispatchRules {
    /// A policy with the default settings.
    #[must_use]
    pub fn of(policy: DispatchPolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// The share of a tenant.
    #[must_use]
    pub fn share(&self, tenant: &Tenant) -> Share {
        self.tenants.get(tenant).copied().unwrap_or(self.default)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_survive_a_round_trip_and_unknown_names_list_the_known_ones() {
        for policy in DispatchPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "lottery".parse::<DispatchPolicy>().unwrap_err().to_string();
        assert!(error.contains("\"lottery\"") && error.contains("`edf`"), "{error}");
    }

    #[test]
    fn weights_are_neither_nothing_nor_everything() {
        assert_eq!(Weight::new(0), Err(InvalidWeight(0)));
        assert_eq!(Weight::new(MAX_WEIGHT + 1), Err(InvalidWeight(MAX_WEIGHT + 1)));
        assert_eq!(Weight::new(7).unwrap().get(), 7);
    }
}
