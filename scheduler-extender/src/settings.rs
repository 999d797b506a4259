//! The administrator's settings, and the policy that follows from them.
//!
//! Flags and the file both fill [`Settings`], in which every setting is optional. This module does not know how
//! either is written.

use fpga_core::catalog::Catalog;
use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_core::matching::UnlabelledNodes;
use fpga_core::score::{InvalidWeights, MaxScore, PerSignal, Weights};
use fpga_core::staleness::StalePolicy;
use serde::Serialize;
use std::fmt;
use std::str::FromStr;

/// Greatest weight of an extender that is accepted. kube-scheduler accepts more, but its default plugins can't
/// outvote this.
pub const MAX_SCHEDULER_WEIGHT: u32 = 10_000;

/// Optional settings; `None` leaves a setting to the next source.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Settings {
    /// Weight of each signal.
    pub weights: PerSignal<Option<f64>>,
    /// Greatest score.
    pub max_score: Option<MaxScore>,
    /// Stale policy of each signal.
    pub stale: PerSignal<Option<StalePolicy>>,
    /// Treatment of nodes with neither state nor label.
    pub unlabelled: Option<UnlabelledNodes>,
    /// Whether pods count before they are measured.
    pub anti_herd: Option<AntiHerd>,
    /// The extender's weight in kube-scheduler's configuration.
    pub scheduler_weight: Option<SchedulerWeight>,
    /// The boards for which each bitstream is valid.
    pub bitstreams: Option<Catalog>,
}

/// All settings in force, for decisions and explanations.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Policy {
    /// Rules of decisions.
    #[serde(flatten)]
    pub rules: DecisionRules,
    /// The extender's weight, for explanations.
    #[serde(rename = "schedulerWeight")]
    pub scheduler_weight: SchedulerWeight,
    /// The boards for which each bitstream is valid.
    pub bitstreams: Catalog,
}

/// The extender's `weight` in kube-scheduler's configuration. Requests don't carry it, so the administrator sets it
/// here as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct SchedulerWeight(u32);

/// The text or number is not a [`SchedulerWeight`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} can't be the extender's weight; write a whole number from 1 to {MAX_SCHEDULER_WEIGHT}")]
pub struct InvalidSchedulerWeight(String);

impl Settings {
    /// These settings, and for each that is `None` the setting of `others`.
    #[must_use]
    pub fn or(self, others: Self) -> Self {
        Self {
            weights: self.weights.zip(others.weights).map(|(first, second)| first.or(second)),
            max_score: self.max_score.or(others.max_score),
            stale: self.stale.zip(others.stale).map(|(first, second)| first.or(second)),
            unlabelled: self.unlabelled.or(others.unlabelled),
            anti_herd: self.anti_herd.or(others.anti_herd),
            scheduler_weight: self.scheduler_weight.or(others.scheduler_weight),
            bitstreams: self.bitstreams.or(others.bitstreams),
        }
    }

    /// The policy: these settings, and the defaults for the others.
    ///
    /// # Errors
    /// [`InvalidWeights`] if a weight is not valid.
    pub fn policy(&self) -> Result<Policy, InvalidWeights> {
        let weights = self.weights.zip(Weights::default().per_signal());
        Ok(Policy {
            rules: DecisionRules {
                weights: Weights::of(weights.map(|(given, default)| given.unwrap_or(default)))?,
                max_score: self.max_score.unwrap_or_default(),
                stale: self.stale.map(Option::unwrap_or_default),
                unlabelled: self.unlabelled.unwrap_or_default(),
                anti_herd: self.anti_herd.unwrap_or_default(),
            },
            scheduler_weight: self.scheduler_weight.unwrap_or_default(),
            bitstreams: self.bitstreams.clone().unwrap_or_default(),
        })
    }

    /// The names of all settings that are not `None`, as a file writes them.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut signals = |group: &str, given: PerSignal<bool>| {
            for (name, given) in PerSignal::NAMES.zip(given).into_array() {
                if given {
                    names.push(format!("{group}.{name}"));
                }
            }
        };
        signals("weights", self.weights.map(|weight| weight.is_some()));
        signals("staleNodes", self.stale.map(|policy| policy.is_some()));
        let others = [
            ("maxScore", self.max_score.is_some()),
            ("unlabelledNodes", self.unlabelled.is_some()),
            ("antiHerd", self.anti_herd.is_some()),
            ("schedulerWeight", self.scheduler_weight.is_some()),
            ("bitstreams", self.bitstreams.is_some()),
        ];
        names.extend(others.into_iter().filter(|(_, given)| *given).map(|(name, _)| name.to_owned()));
        names
    }
}

impl SchedulerWeight {
    /// The weight `weight`.
    ///
    /// # Errors
    /// [`InvalidSchedulerWeight`] if `weight` isn't from 1 to [`MAX_SCHEDULER_WEIGHT`].
    pub fn new(weight: u32) -> Result<Self, InvalidSchedulerWeight> {
        match weight {
            1..=MAX_SCHEDULER_WEIGHT => Ok(Self(weight)),
            _ => Err(InvalidSchedulerWeight(weight.to_string())),
        }
    }

    /// The weight as a number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl Default for SchedulerWeight {
    /// 10, as in the shipped configurations of kube-scheduler.
    fn default() -> Self {
        Self(10)
    }
}

impl FromStr for SchedulerWeight {
    type Err = InvalidSchedulerWeight;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let weight = text.parse().ok().and_then(|weight| Self::new(weight).ok());
        weight.ok_or_else(|| InvalidSchedulerWeight(text.to_owned()))
    }
}

impl fmt::Display for SchedulerWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_first_wins_and_defaults_fill_the_rest() {
        let weights = |locality, usage| PerSignal { locality, usage, ..PerSignal::default() };
        let first = Settings { weights: weights(Some(7.0), None), ..Settings::default() };
        let second = Settings {
            weights: weights(Some(1.0), Some(5.0)),
            anti_herd: Some(AntiHerd::Off),
            ..Settings::default()
        };
        let policy = first.or(second.clone()).policy().unwrap();
        assert_eq!(policy.rules.weights.to_string(), "7-5-2");
        assert_eq!((policy.rules.anti_herd, policy.rules.max_score.get()), (AntiHerd::Off, 10));
        assert_eq!(second.names(), ["weights.locality", "weights.usage", "antiHerd"]);
    }

    #[test]
    fn weights_of_an_extender_are_small_whole_numbers() {
        assert_eq!("10".parse(), Ok(SchedulerWeight::default()));
        for text in ["0", "-1", "1.5", "10001", ""] {
            assert!(text.parse::<SchedulerWeight>().unwrap_err().to_string().contains("from 1 to"), "{text}");
        }
    }
}
