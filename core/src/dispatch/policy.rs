//! By which rule a device manager chooses between the sessions that wait (T-1), and what each tenant has of it.
//!
//! Nothing is chosen here: [`super::chooser`] does that. Where the rules come from (flags, a file) is the caller's.

use super::Tenant;
use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::time::Duration;

/// Heaviest weight: with more, the light ones would wait for ever.
pub const MAX_WEIGHT: u32 = 10_000;

/// How to choose between sessions. None of them changes the order of one session's own tasks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// First in, first out: by arrival at the dispatch.
    #[default]
    Fifo,
    /// One task of each tenant in turn, whatever it takes.
    RoundRobin,
    /// Device time in proportion to the weights (deficit round-robin): a turn is as long as weight × quantum.
    DeficitRoundRobin,
    /// The highest priority first; waiting raises it, so that nobody starves.
    Priority,
    /// The shortest by its profile, the measured mean of what the task runs; an eighth of the time that a task has
    /// waited is taken off, so that nobody starves.
    ShortestFirst,
    /// The earliest deadline: arrival plus what the tenant has for a task.
    EarliestDeadline,
}

/// A text is no policy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is no policy; write `fifo`, `round-robin`, `drr` (deficit round-robin by device time), `priority`, `sjf` \
     (shortest job first) or `edf` (earliest deadline first)"
)]
pub struct UnknownPolicy(String);

/// What part of the device a tenant has, as far as the policy looks at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// For [`Policy::DeficitRoundRobin`].
    pub weight: Weight,
    /// For [`Policy::Priority`]; more goes first.
    pub priority: u8,
    /// For [`Policy::EarliestDeadline`]: how long after its arrival a task should have begun.
    pub deadline: Duration,
}

/// A part of the device's time in proportion to the others': 1 to [`MAX_WEIGHT`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Weight(NonZeroU32);

/// A number is no [`Weight`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no weight; write 1 to {MAX_WEIGHT}")]
pub struct InvalidWeight(u32);

/// The policy of a device manager with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    /// How to choose.
    pub policy: Policy,
    /// Device time that a weight of 1 gets in a turn of [`Policy::DeficitRoundRobin`].
    pub quantum: Duration,
    /// How long a task waits until its priority is one higher under [`Policy::Priority`].
    pub ageing: Duration,
    /// The share of tenants that aren't listed.
    pub default: Share,
    /// Those that are.
    pub tenants: BTreeMap<Tenant, Share>,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Fifo,
        Self::RoundRobin,
        Self::DeficitRoundRobin,
        Self::Priority,
        Self::ShortestFirst,
        Self::EarliestDeadline,
    ];

    /// Its name on the command line.
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

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|policy| policy.as_str() == text).ok_or_else(|| UnknownPolicy(text.into()))
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Weight {
    /// The least.
    pub const ONE: Self = Self(NonZeroU32::MIN);

    /// So much.
    ///
    /// # Errors
    /// [`InvalidWeight`] for 0 and for more than [`MAX_WEIGHT`].
    pub fn new(weight: u32) -> Result<Self, InvalidWeight> {
        match NonZeroU32::new(weight) {
            Some(weight) if weight.get() <= MAX_WEIGHT => Ok(Self(weight)),
            _ => Err(InvalidWeight(weight)),
        }
    }

    /// The number.
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

impl Default for Rules {
    /// First in, first out; all tenants alike.
    fn default() -> Self {
        Self {
            policy: Policy::default(),
            quantum: Duration::from_millis(1),
            ageing: Duration::from_millis(100),
            default: Share::default(),
            tenants: BTreeMap::new(),
        }
    }
}

impl Rules {
    /// A policy with the usual settings.
    #[must_use]
    pub fn of(policy: Policy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// What a tenant has.
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
        for policy in Policy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "lottery".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("\"lottery\"") && error.contains("`edf`"), "{error}");
    }

    #[test]
    fn weights_are_neither_nothing_nor_everything() {
        assert_eq!(Weight::new(0), Err(InvalidWeight(0)));
        assert_eq!(Weight::new(MAX_WEIGHT + 1), Err(InvalidWeight(MAX_WEIGHT + 1)));
        assert_eq!(Weight::new(7).unwrap().get(), 7);
    }
}
