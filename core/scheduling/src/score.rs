//! Weights of the signals, and the integer score from their weighted mean (S-2).

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Maximum weight.
pub const MAX_WEIGHT: f64 = 1_000_000.0;
/// Maximum of [`MaxScore`].
pub const MAX_MAX_SCORE: u32 = 1_000_000;

/// The weight of each signal. Text form `<locality>-<usage>-<reconfiguration>`, for example `1-2-2`. Weights of one,
/// two or three further signals may follow, `<free slots>-<queue>-<loaded>`; a missing weight is 0.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "PerSignal<f64>")]
pub struct Weights(PerSignal<f64>);

/// One value per signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PerSignal<T> {
    /// Bitstream locality: bitstreams that are loaded or were used recently.
    pub locality: T,
    /// Recent usage.
    pub usage: T,
    /// Recent reconfiguration time.
    pub reconfiguration: T,
    /// Empty slots; not in the paper.
    #[serde(default)]
    pub free_slots: T,
    /// Waiting tasks; not in the paper.
    #[serde(default)]
    pub queue: T,
    /// Bitstreams that are in a slot now; not in the paper.
    #[serde(default)]
    pub loaded: T,
}

/// The greatest score; kube-scheduler's convention is 10.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32")]
pub struct MaxScore(u32);

/// The reason why a value is not [`Weights`].
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum InvalidWeights {
    /// The text does not have three to six numbers.
    #[error(
        "{0:?} is not a setting of weights; write locality, usage and reconfiguration with `-` between, as in `1-2-2`; those of free slots, queue and loaded may follow, as in `0.5-2-2-1`"
    )]
    Form(String),
    /// A weight is negative, not finite or above [`MAX_WEIGHT`].
    #[error("{0} is not a weight; write a number from 0 to {MAX_WEIGHT}")]
    Range(f64),
}

/// The value is not a [`MaxScore`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} can't be the greatest score; write a whole number from 1 to {MAX_MAX_SCORE}")]
pub struct InvalidMaxScore(String);

impl<T> PerSignal<T> {
    /// Applies `f` to each value.
    pub fn map<U>(self, f: impl Fn(T) -> U) -> PerSignal<U> {
        PerSignal {
            locality: f(self.locality),
            usage: f(self.usage),
            reconfiguration: f(self.reconfiguration),
            free_slots: f(self.free_slots),
            queue: f(self.queue),
            loaded: f(self.loaded),
        }
    }

    /// Pairs the values of `self` and `other` by signal.
    pub fn zip<U>(self, other: PerSignal<U>) -> PerSignal<(T, U)> {
        PerSignal {
            locality: (self.locality, other.locality),
            usage: (self.usage, other.usage),
            reconfiguration: (self.reconfiguration, other.reconfiguration),
            free_slots: (self.free_slots, other.free_slots),
            queue: (self.queue, other.queue),
            loaded: (self.loaded, other.loaded),
        }
    }

    /// The values as an array, the paper's three signals first.
    pub fn into_array(self) -> [T; 6] {
        [self.locality, self.usage, self.reconfiguration, self.free_slots, self.queue, self.loaded]
    }
}

impl PerSignal<&'static str> {
    /// Names of the signals in configuration files and answers.
    pub const NAMES: Self = Self {
        locality: "locality",
        usage: "usage",
        reconfiguration: "reconfiguration",
        free_slots: "freeSlots",
        queue: "queue",
        loaded: "loaded",
    };
}

impl Weights {
    /// Weights of the paper's three signals; the others have weight 0.
    ///
    /// # Errors
    /// [`InvalidWeights::Range`] if one is negative, not finite or above [`MAX_WEIGHT`].
    pub fn new(locality: f64, usage: f64, reconfiguration: f64) -> Result<Self, InvalidWeights> {
        Self::of(PerSignal { locality, usage, reconfiguration, ..PerSignal::default() })
    }

    /// Checked weights.
    ///
    /// # Errors
    /// [`InvalidWeights::Range`] if one is negative, not finite or above [`MAX_WEIGHT`].
    pub fn of(weights: PerSignal<f64>) -> Result<Self, InvalidWeights> {
        weights.into_array().into_iter().try_for_each(check_weight)?;
        Ok(Self(weights))
    }

    /// The weight of each signal.
    #[must_use]
    pub fn per_signal(&self) -> PerSignal<f64> {
        self.0
    }

    /// The weighted mean of values from 0 to 1. It is 0 if all weights are 0, so that all nodes are equal.
    #[must_use]
    pub fn mean(&self, values: PerSignal<f64>) -> f64 {
        self.ready().of(values)
    }

    /// The weights, ready for the means of many nodes.
    #[must_use]
    pub(crate) fn ready(&self) -> Mean {
        Mean { weights: self.0, sum: self.0.into_array().into_iter().sum() }
    }
}

/// Computes weighted means.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mean {
    weights: PerSignal<f64>,
    sum: f64,
}

impl Mean {
    /// As [`Weights::mean`].
    pub(crate) fn of(&self, values: PerSignal<f64>) -> f64 {
        if self.sum == 0.0 {
            return 0.0;
        }
        let weighted =
            self.weights.zip(values).into_array().into_iter().map(|(weight, value)| weight * value);
        weighted.sum::<f64>() / self.sum
    }
}

/// Checks a weight.
///
/// # Errors
/// [`InvalidWeights::Range`] if it is negative, not finite or above [`MAX_WEIGHT`].
pub fn check_weight(weight: f64) -> Result<(), InvalidWeights> {
    if (0.0..=MAX_WEIGHT).contains(&weight) { Ok(()) } else { Err(InvalidWeights::Range(weight)) }
}

impl TryFrom<PerSignal<f64>> for Weights {
    type Error = InvalidWeights;

    fn try_from(weights: PerSignal<f64>) -> Result<Self, Self::Error> {
        Self::of(weights)
    }
}

impl Default for Weights {
    /// `1-2-2`, the paper's weights (S-10).
    fn default() -> Self {
        Self(PerSignal { locality: 1.0, usage: 2.0, reconfiguration: 2.0, ..PerSignal::default() })
    }
}

impl MaxScore {
    /// A checked greatest score.
    ///
    /// # Errors
    /// [`InvalidMaxScore`] unless it is from 1 to [`MAX_MAX_SCORE`].
    pub fn new(max: u32) -> Result<Self, InvalidMaxScore> {
        if (1..=MAX_MAX_SCORE).contains(&max) { Ok(Self(max)) } else { Err(InvalidMaxScore(max.to_string())) }
    }

    /// The number.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The score for `mean` (0 to 1); halves are rounded up.
    #[must_use]
    pub fn score(self, mean: f64) -> u32 {
        // A tolerance, so that a half which is slightly too small by rounding errors still rounds up.
        const TOLERANCE: f64 = 1e-9;
        let score = (mean * f64::from(self.0) + 0.5 + TOLERANCE).clamp(0.0, f64::from(self.0));
        // The cast rounds down.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to 0..=u32")]
        let score = score as u32;
        score
    }
}

impl Default for MaxScore {
    fn default() -> Self {
        Self(10)
    }
}

impl FromStr for Weights {
    type Err = InvalidWeights;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || InvalidWeights::Form(text.to_owned());
        let weights: Vec<f64> =
            text.split('-').map(|part| part.trim().parse().map_err(|_| form())).collect::<Result<_, _>>()?;
        match weights[..] {
            [locality, usage, reconfiguration, ref further @ ..] if further.len() <= 3 => {
                let further = |index: usize| further.get(index).copied().unwrap_or_default();
                let (free_slots, queue, loaded) = (further(0), further(1), further(2));
                Self::of(PerSignal { locality, usage, reconfiguration, free_slots, queue, loaded })
            }
            _ => Err(form()),
        }
    }
}

impl fmt::Display for Weights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PerSignal { locality, usage, reconfiguration, free_slots, queue, loaded } = self.0;
        write!(f, "{locality}-{usage}-{reconfiguration}")?;
        if [free_slots, queue, loaded] == [0.0; 3] {
            return Ok(());
        }
        write!(f, "-{free_slots}-{queue}-{loaded}")
    }
}

impl TryFrom<u32> for MaxScore {
    type Error = InvalidMaxScore;

    fn try_from(max: u32) -> Result<Self, Self::Error> {
        max.to_string().parse()
    }
}

impl FromStr for MaxScore {
    type Err = InvalidMaxScore;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().ok().and_then(|max| Self::new(max).ok()).ok_or_else(|| InvalidMaxScore(text.to_owned()))
    }
}

impl fmt::Display for MaxScore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(locality: f64, usage: f64, reconfiguration: f64) -> PerSignal<f64> {
        PerSignal { locality, usage, reconfiguration, ..PerSignal::default() }
    }

    #[test]
    fn further_signals_count_by_their_weights_and_not_at_all_by_default() {
        let values = PerSignal { free_slots: 1.0, queue: 0.5, loaded: 0.25, ..values(1.0, 1.0, 1.0) };
        let of = |text: &str| text.parse::<Weights>().unwrap().mean(values);
        assert!((of("1-2-2") - 1.0).abs() < 1e-12);
        assert!((of("0-0-0-1-2-4") - 3.0 / 7.0).abs() < 1e-12);
        assert!((of("1-0-0-0-2-0") - 2.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn the_mean_is_weighted() {
        let mean = Weights::default().mean(values(1.0, 0.5, 0.25));
        assert!((mean - 0.5).abs() < 1e-12);
        assert_eq!(MaxScore::default().score(mean), 5);
    }

    #[test]
    fn weights_of_nothing_make_all_equal() {
        let none: Weights = "0-0-0".parse().unwrap();
        assert_eq!(MaxScore::default().score(none.mean(values(1.0, 1.0, 0.0))), 0);
    }

    #[test]
    fn halves_are_rounded_up_on_every_scale() {
        assert_eq!(MaxScore::default().score(0.25), 3);
        assert_eq!(MaxScore::default().score(0.249), 2);
        assert_eq!(MaxScore::default().score(0.3 - 0.05), 3, "0.3 - 0.05 is a hair under a quarter");
        assert_eq!("100".parse::<MaxScore>().unwrap().score(0.249), 25);
    }

    #[test]
    fn weights_survive_a_round_trip_through_text() {
        for text in ["1-2-2", "0-0-0", "0.5-2-1.25", "1-2-2-0-0.5-0", "0-0-0-1-2-3"] {
            assert_eq!(text.parse::<Weights>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn the_further_signals_that_are_left_out_have_no_weight() {
        for (text, all) in
            [("0.5-2-2-1", "0.5-2-2-1-0-0"), ("1-2-2-0-3", "1-2-2-0-3-0"), ("1-2-2-0", "1-2-2")]
        {
            assert_eq!(text.parse::<Weights>().unwrap().to_string(), all);
        }
    }

    #[test]
    fn an_invalid_weight_is_refused_with_what_to_write() {
        for text in ["", "1-2", "1-2-3-4-5-6-7", "a-b-c", "1--2-2", "1-2-2-x"] {
            assert!(matches!(text.parse::<Weights>(), Err(InvalidWeights::Form(_))), "{text}");
        }
        for weight in [f64::NAN, f64::INFINITY, -1.0, 1e7] {
            assert!(matches!(Weights::new(1.0, weight, 1.0), Err(InvalidWeights::Range(_))), "{weight}");
        }
        for text in ["0", "-1", "1.5", "1000001", ""] {
            assert!(text.parse::<MaxScore>().is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_score_is_on_the_scale_and_grows_with_the_mean(
            max in 1_u32..=MAX_MAX_SCORE, a in 0.0..=1.0_f64, b in 0.0..=1.0_f64,
        ) {
            let max = MaxScore(max);
            let (low, high) = if a <= b { (a, b) } else { (b, a) };
            prop_assert!(max.score(low) <= max.score(high));
            prop_assert!(max.score(high) <= max.get());
            prop_assert_eq!(max.score(1.0), max.get());
        }

        #[test]
        fn the_mean_lies_among_the_values(
            w in (0.0..10.0_f64, 0.0..10.0_f64, 0.1..10.0_f64), v in (0.0..=1.0_f64, 0.0..=1.0_f64, 0.0..=1.0_f64),
        ) {
            let mean = Weights::new(w.0, w.1, w.2).unwrap().mean(values(v.0, v.1, v.2));
            let (least, most) = (v.0.min(v.1).min(v.2), v.0.max(v.1).max(v.2));
            prop_assert!(mean >= least - 1e-12 && mean <= most + 1e-12);
        }
    }
}
