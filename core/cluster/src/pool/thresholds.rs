//! Thresholds between priority queues by job size (P-4, P-5).
//!
//! The first thresholds grow geometrically, the middle ones linearly, the last ones geometrically again. The paper's
//! formula and its pseudo code differ in the start of the linear part. This module follows the pseudo code, which is
//! continuous.

use super::Bytes;

/// Parameters of the thresholds between queues.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shape {
    /// E: the first threshold, in bytes.
    pub first: f64,
    /// q: ratio of a geometric threshold to the one before it.
    pub growth: f64,
    /// k1: number of the last threshold before the linear part, from 1.
    pub linear_from: u32,
    /// k2: number of the last threshold of the linear part; equal to k1 if there is no linear part.
    pub linear_to: u32,
    /// K: number of queues, one more than the number of thresholds.
    pub queues: u32,
}

/// Upper bounds of all queues but the last, in bytes, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Thresholds(Vec<u64>);

/// The reason why parameters do not define thresholds.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ShapeError {
    /// E is below 1 or not finite.
    #[error("the first threshold is {0} bytes: it must be a number of at least 1")]
    First(f64),
    /// q is not above 1, or not finite.
    #[error("thresholds grow by a factor of {0}: it must be a number above 1, e.g. 1.41")]
    Growth(f64),
    /// k1, k2 and K are not in order.
    #[error(
        "the linear part goes from {from} to {to} of {queues} queues: 1 <= from <= to <= queues is needed"
    )]
    Order {
        /// k1.
        from: u32,
        /// k2.
        to: u32,
        /// K.
        queues: u32,
    },
    /// More than [`MAX_QUEUES`] queues.
    #[error("{queues} queues are more than {MAX_QUEUES}")]
    TooMany {
        /// K.
        queues: u32,
    },
    /// The list of thresholds does not ascend.
    #[error("thresholds must ascend, and {0} bytes does not")]
    NotAscending(u64),
}

/// Maximum number of queues.
pub const MAX_QUEUES: u32 = 1000;

/// Upper bound of thresholds, in bytes; all jobs are smaller.
const CEILING: f64 = 9e18;

impl Shape {
    /// The K − 1 thresholds in bytes, ascending.
    ///
    /// # Errors
    /// [`ShapeError`] if a parameter makes no sense.
    pub fn bounds(&self) -> Result<Vec<f64>, ShapeError> {
        let Self { first, growth, linear_from, linear_to, queues } = *self;
        if !(first.is_finite() && first >= 1.0) {
            return Err(ShapeError::First(first));
        }
        if !(growth.is_finite() && growth > 1.0) {
            return Err(ShapeError::Growth(growth));
        }
        if !(1 <= linear_from && linear_from <= linear_to && linear_to <= queues) {
            return Err(ShapeError::Order { from: linear_from, to: linear_to, queues });
        }
        if queues > MAX_QUEUES {
            return Err(ShapeError::TooMany { queues });
        }
        let mut geometric = Vec::new();
        let mut next = first;
        for _ in 0..queues {
            geometric.push(next);
            next = (next * growth).min(CEILING);
        }
        let at = |k: u32| geometric.get(k as usize - 1).copied().unwrap_or(CEILING);
        let (low, high) = (at(linear_from), at(linear_to));
        let linear =
            |k: u32| low + (high - low) * f64::from(k - linear_from) / f64::from(linear_to - linear_from);
        let bound = |k: u32| if linear_from < k && k < linear_to { linear(k) } else { at(k) };
        Ok((1..queues).map(bound).collect())
    }

    /// The thresholds, rounded to bytes.
    ///
    /// # Errors
    /// [`ShapeError`] if a parameter makes no sense.
    pub fn thresholds(&self) -> Result<Thresholds, ShapeError> {
        let mut bounds: Vec<u64> = self.bounds()?.into_iter().map(whole).collect();
        bounds.dedup();
        Thresholds::new(bounds)
    }
}

/// Rounds a bound down to whole bytes.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and CEILING")]
fn whole(bound: f64) -> u64 {
    bound as u64
}

impl Thresholds {
    /// Thresholds from a list; an empty list makes one queue.
    ///
    /// # Errors
    /// [`ShapeError::NotAscending`] for the first threshold that is not above the one before it.
    pub fn new(bounds: Vec<u64>) -> Result<Self, ShapeError> {
        match bounds.windows(2).find_map(|pair| match pair {
            [a, b] if a >= b => Some(*b),
            _ => None,
        }) {
            Some(bound) => Err(ShapeError::NotAscending(bound)),
            None => Ok(Self(bounds)),
        }
    }

    /// The queue of a job of this size; 0 is the queue of the smallest jobs.
    #[must_use]
    pub fn queue_of(&self, size: Bytes) -> u64 {
        self.0.partition_point(|bound| *bound < size.0) as u64
    }

    /// Number of queues.
    #[must_use]
    pub fn queues(&self) -> usize {
        self.0.len() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn shape(first: f64, growth: f64, linear_from: u32, linear_to: u32, queues: u32) -> Shape {
        Shape { first, growth, linear_from, linear_to, queues }
    }

    #[test]
    fn thresholds_are_geometric_then_linear_then_geometric() {
        // Expected: 10, 20 | from 20 to 10·2^4 = 160 in three steps: 66⅔, 113⅓, 160 | 320, 640.
        let bounds = shape(10.0, 2.0, 2, 5, 8).bounds().unwrap();
        let expected = [10.0, 20.0, 20.0 + 140.0 / 3.0, 20.0 + 280.0 / 3.0, 160.0, 320.0, 640.0];
        assert_eq!(bounds.len(), expected.len());
        for (bound, expected) in bounds.iter().zip(expected) {
            assert!((bound - expected).abs() < 1e-9, "{bounds:?}");
        }
    }

    #[test]
    fn without_a_linear_part_all_are_geometric() {
        assert_eq!(shape(1.0, 3.0, 1, 1, 5).bounds().unwrap(), [1.0, 3.0, 9.0, 27.0]);
        assert_eq!(shape(1.0, 3.0, 1, 2, 5).bounds().unwrap(), [1.0, 3.0, 9.0, 27.0]);
    }

    #[test]
    fn a_job_of_just_the_threshold_belongs_to_the_lower_queue() {
        let thresholds = Thresholds::new(vec![10, 20]).unwrap();
        let queues = [0, 10, 11, 20, 21, u64::MAX].map(|size| thresholds.queue_of(Bytes(size)));
        assert_eq!(queues, [0, 0, 1, 1, 2, 2]);
        assert_eq!(Thresholds::new(Vec::new()).unwrap().queue_of(Bytes(7)), 0);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        assert!(matches!(shape(0.0, 2.0, 1, 1, 3).bounds(), Err(ShapeError::First(_))));
        assert!(matches!(shape(f64::NAN, 2.0, 1, 1, 3).bounds(), Err(ShapeError::First(_))));
        assert!(matches!(shape(1.0, 1.0, 1, 1, 3).bounds(), Err(ShapeError::Growth(_))));
        assert!(matches!(shape(1.0, 2.0, 0, 1, 3).bounds(), Err(ShapeError::Order { .. })));
        assert!(matches!(shape(1.0, 2.0, 3, 2, 3).bounds(), Err(ShapeError::Order { .. })));
        assert!(matches!(shape(1.0, 2.0, 1, 4, 3).bounds(), Err(ShapeError::Order { .. })));
        assert!(matches!(shape(1.0, 2.0, 1, 4, 3000).bounds(), Err(ShapeError::TooMany { .. })));
        assert!(matches!(Thresholds::new(vec![2, 2]), Err(ShapeError::NotAscending(2))));
    }

    proptest! {
        #[test]
        fn larger_jobs_never_stand_in_an_earlier_queue(
            first in 1.0_f64..1e9, growth in 1.001_f64..9.0, a in 1_u32..30, b in 1_u32..30, more in 0_u32..30,
            sizes in prop::collection::vec(any::<u64>(), 2..40),
        ) {
            let (from, to) = (a.min(b), a.max(b));
            let shape = shape(first, growth, from, to, to + more);
            let thresholds = shape.thresholds().unwrap();
            let mut sizes = sizes;
            sizes.sort_unstable();
            let queues: Vec<u64> = sizes.iter().map(|size| thresholds.queue_of(Bytes(*size))).collect();
            prop_assert!(queues.is_sorted());
            prop_assert!(queues.iter().all(|queue| *queue < thresholds.queues() as u64));
        }
    }
}
