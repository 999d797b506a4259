//! Rank of a node by one signal (S-2): its place among the candidates, not the size of its value.

use crate::units::Millis;

/// Per value `(n − i) / n`: n the number of values, i the index of the first equal one in ascending order.
///
/// The least value has 1, equal values share a rank, and the greatest of n distinct ones has 1 / n.
#[must_use]
pub fn ranks(values: &[Millis]) -> Vec<f64> {
    let n = values.len();
    // Value and place in one number: sorts fastest, and says where each rank belongs.
    let mut sorted: Vec<u128> =
        values.iter().zip(0_u128..).map(|(value, place)| u128::from(value.0) << 64 | place).collect();
    sorted.sort_unstable();
    let mut ranks = vec![0.0; n];
    let (mut first_equal, mut value_there) = (0, None);
    for (index, entry) in sorted.into_iter().enumerate() {
        let value = entry >> 64;
        if value_there != Some(value) {
            (first_equal, value_there) = (index, Some(value));
        }
        let place = usize::try_from(entry & u128::from(u64::MAX)).unwrap_or(usize::MAX);
        if let Some(rank) = ranks.get_mut(place) {
            *rank = (n - first_equal) as f64 / n as f64;
        }
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn millis(values: &[u64]) -> Vec<Millis> {
        values.iter().copied().map(Millis).collect()
    }

    #[test]
    fn the_least_used_is_best_and_equals_share() {
        assert_eq!(ranks(&millis(&[30, 10, 20, 10])), [0.25, 1.0, 0.5, 1.0]);
        assert_eq!(ranks(&millis(&[5, 5])), [1.0, 1.0]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    proptest! {
        #[test]
        fn order_is_all_that_counts(values in prop::collection::vec(0_u64..50, 1..60)) {
            let ranks = ranks(&millis(&values));
            let doubled = super::ranks(&millis(&values.iter().map(|value| value * 2 + 7).collect::<Vec<_>>()));
            prop_assert_eq!(&ranks, &doubled);
            prop_assert!(ranks.iter().all(|rank| *rank > 0.0 && *rank <= 1.0));
            prop_assert!(ranks.contains(&1.0));
            for (a, rank_a) in values.iter().zip(&ranks) {
                for (b, rank_b) in values.iter().zip(&ranks) {
                    prop_assert_eq!(a.cmp(b), rank_b.partial_cmp(rank_a).unwrap());
                }
            }
        }
    }
}
