//! The window in time slices, by which a reader fades a node's usage between two publications.

use crate::units::Millis;
use serde::{Deserialize, Serialize};

/// Usage and reconfiguration time of the window in slices of equal length, newest first.
///
/// Slice `i` covers `(measured_at − (i + 1) × bucket, measured_at − i × bucket]`. Zeros at the old end may be omitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Buckets {
    /// Length of a slice.
    #[serde(rename = "bucketMs")]
    pub bucket: Millis,
    /// Slot time used per slice.
    #[serde(rename = "usageMs", default)]
    pub usage: Vec<Millis>,
    /// Time spent reconfiguring per slice.
    #[serde(rename = "reconfigurationMs", default)]
    pub reconfiguration: Vec<Millis>,
}

impl Buckets {
    /// The sum of those `slices` that lie in the window that ends `age` after the measurement. A slice that the old
    /// end of the window cuts counts by the share inside the window.
    #[must_use]
    pub fn sum_at(slices: &[Millis], bucket: Millis, window: Millis, age: Millis) -> Millis {
        if bucket == Millis::ZERO {
            return Millis::ZERO;
        }
        let covered = (window - age).0;
        let whole = usize::try_from(covered / bucket.0).unwrap_or(usize::MAX).min(slices.len());
        let sum = slices[..whole].iter().fold(Millis::ZERO, |sum, slice| sum + *slice);
        let Some(partly) = slices.get(whole) else { return sum };
        let share = u128::from(partly.0) * u128::from(covered % bucket.0) / u128::from(bucket.0);
        sum + Millis(u64::try_from(share).unwrap_or(u64::MAX))
    }

    /// Number of slices, without omitted ones.
    #[must_use]
    pub fn len(&self) -> usize {
        self.usage.len().max(self.reconfiguration.len())
    }

    /// Whether there is no slice.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Halves the resolution: two neighbouring slices become one of twice the length.
    pub fn halve(&mut self) {
        self.bucket = self.bucket + self.bucket;
        for slices in [&mut self.usage, &mut self.reconfiguration] {
            *slices = slices
                .chunks(2)
                .map(|pair| pair.iter().fold(Millis::ZERO, |sum, part| sum + *part))
                .collect();
        }
    }

    /// Omits zeros at the old end.
    pub fn trim(&mut self) {
        for slices in [&mut self.usage, &mut self.reconfiguration] {
            let end = slices.iter().rposition(|slice| *slice != Millis::ZERO).map_or(0, |last| last + 1);
            slices.truncate(end);
        }
    }
}
