//! Rank of a node by one signal (S-2). The order of the values decides, not their size.

/// The rank `(n − i) / n` of each value: n is the number of values, i the index of the first equal value in ascending
/// order.
///
/// The least value has rank 1, equal values have the same rank, and the greatest of n distinct values has rank 1 / n.
#[must_use]
pub fn ranks(values: &[u64]) -> Vec<f64> {
    let n = values.len();
    // Value and index packed in one number sort fastest, and the index tells where the rank belongs.
    let place_bits = usize::BITS - n.leading_zeros();
    let all_bits = values.iter().fold(0, |bits, value| bits | value);
    if all_bits.leading_zeros() >= place_bits {
        let mask = (1_u64 << place_bits) - 1;
        let mut packed: Vec<u64> =
            values.iter().zip(0_u64..).map(|(value, place)| value << place_bits | place).collect();
        sort_by_value(&mut packed, place_bits);
        in_place(n, packed.into_iter().map(|entry| (entry >> place_bits, entry & mask)))
    } else {
        let mut pairs: Vec<(u64, u64)> = values.iter().copied().zip(0..).collect();
        pairs.sort_unstable();
        in_place(n, pairs.into_iter())
    }
}

/// Bits per digit of the radix sort.
const DIGIT_BITS: u32 = 11;
/// Number of entries from which radix sort is faster than comparison sort.
const MANY: usize = 512;
/// Number of digits up to which radix sort is faster. Usage in a window has two digits.
const MOST_DIGITS: u32 = 3;

/// Sorts numbers by the bits above `place_bits`. The sort is stable. It is a radix sort, least significant digit
/// first.
fn sort_by_value(packed: &mut Vec<u64>, place_bits: u32) {
    let all_bits = packed.iter().fold(0, |bits, entry| bits | entry >> place_bits);
    let digits = (u64::BITS - all_bits.leading_zeros()).div_ceil(DIGIT_BITS);
    if packed.len() < MANY || digits > MOST_DIGITS {
        packed.sort_unstable();
        return;
    }
    #[expect(clippy::cast_possible_truncation, reason = "it is masked to a few bits")]
    let digit_of = |entry: u64, digit: u32| {
        (entry >> (place_bits + digit * DIGIT_BITS)) as usize & ((1 << DIGIT_BITS) - 1)
    };
    let mut sorted = packed.clone();
    for digit in 0..digits {
        let mut places = [0_u32; 1 << DIGIT_BITS];
        for entry in &*packed {
            places[digit_of(*entry, digit)] += 1;
        }
        let mut before = 0;
        for place in &mut places {
            before += std::mem::replace(place, before);
        }
        for entry in &*packed {
            let place = &mut places[digit_of(*entry, digit)];
            sorted[*place as usize] = *entry;
            *place += 1;
        }
        std::mem::swap(packed, &mut sorted);
    }
}

/// The ranks in the order of the indexes, from pairs of value and index in ascending order.
fn in_place(n: usize, ascending: impl Iterator<Item = (u64, u64)>) -> Vec<f64> {
    let mut ranks = vec![0.0; n];
    let all = n as f64;
    let (mut left, mut rank, mut value_there) = (all, 0.0, None);
    for (value, place) in ascending {
        if value_there != Some(value) {
            value_there = Some(value);
            rank = left / all;
        }
        if let Some(slot) = usize::try_from(place).ok().and_then(|place| ranks.get_mut(place)) {
            *slot = rank;
        }
        // Exact: it is a whole number below 2^53.
        left -= 1.0;
    }
    ranks
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_least_used_is_best_and_equals_share() {
        assert_eq!(ranks(&[30, 10, 20, 10]), [0.25, 1.0, 0.5, 1.0]);
        assert_eq!(ranks(&[5, 5]), [1.0, 1.0]);
        assert_eq!(ranks(&[]), [0.0; 0]);
    }

    #[test]
    fn values_beyond_all_bounds_are_ranked_too() {
        assert_eq!(ranks(&[u64::MAX, 0, u64::MAX - 1, u64::MAX]), [0.5, 1.0, 0.75, 0.5]);
    }

    proptest! {
        #[test]
        fn radix_sort_equals_comparison_sort(
            values in prop::collection::vec(0_u64..1 << 45, MANY - 2..3 * MANY), bits in 0_u32..46, place_bits in 11_u32..14,
        ) {
            let values = values.into_iter().map(|value| value & ((1 << bits) - 1));
            let mut packed: Vec<u64> = values.zip(0_u64..).map(|(value, place)| value << place_bits | place).collect();
            let mut by_comparing = packed.clone();
            by_comparing.sort_unstable();
            sort_by_value(&mut packed, place_bits);
            prop_assert_eq!(packed, by_comparing);
        }

        #[test]
        fn ranks_depend_on_the_order_of_the_values_only(values in prop::collection::vec(0_u64..50, 1..60)) {
            let ranks = ranks(&values);
            let doubled = super::ranks(&values.iter().map(|value| value * 2 + 7).collect::<Vec<_>>());
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
