//! The used part of a board's slot time.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Used part of slot time, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Utilization {
    per_mille: u64,
}

/// The text is not a [`Utilization`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no utilization; write a number from 0 to 1, for example \"0.9\"")]
pub struct InvalidUtilization(String);

impl Utilization {
    /// Nothing is used.
    pub const ZERO: Self = Self { per_mille: 0 };

    /// `used` of `capacity`, rounded down; 0 of no capacity.
    #[must_use]
    pub fn of(used: u64, capacity: u64) -> Self {
        Self { per_mille: used.saturating_mul(1000) / capacity.max(1) }
    }

    /// The used part in thousandths.
    pub(crate) const fn per_mille(self) -> u64 {
        self.per_mille
    }

    /// The unused part in thousandths.
    pub(crate) const fn free_per_mille(self) -> u64 {
        1000_u64.saturating_sub(self.per_mille)
    }
}

impl fmt::Display for Utilization {
    /// In percent.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (percent, tenths) = (self.per_mille / 10, self.per_mille % 10);
        if tenths == 0 { write!(f, "{percent} %") } else { write!(f, "{percent}.{tenths} %") }
    }
}

impl FromStr for Utilization {
    type Err = InvalidUtilization;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let share = text.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
        let share = share.ok_or_else(|| InvalidUtilization(text.chars().take(40).collect()))?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 1000")]
        let per_mille = (share * 1000.0).round() as u64;
        Ok(Self { per_mille })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_from_0_to_1_is_read_and_anything_else_is_refused_with_an_example() {
        assert_eq!("0.9".parse(), Ok(Utilization::of(900, 1000)));
        assert_eq!(" 1 ".parse(), Ok(Utilization::of(1, 1)));
        assert_eq!("0.29".parse(), Ok(Utilization::of(29, 100)));
        for text in ["", "90%", "1.1", "-0.1", "NaN", "inf", "0,9"] {
            let error = text.parse::<Utilization>().unwrap_err().to_string();
            assert!(error.contains("\"0.9\""), "{error}");
        }
        assert_eq!(Utilization::of(5, 0), Utilization::of(5000, 1000));
    }
}
