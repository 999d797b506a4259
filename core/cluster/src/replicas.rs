//! Number of replicas of each function within a budget (S-11): busier functions get more. Placement is decided
//! elsewhere.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of replicas per function: at least one and at most `most`, and together at most `budget` or the number of
/// functions, whichever is greater. `demand` is the usage of each function, in any unit.
///
/// Each further replica goes to the function with the greatest demand per replica, counted with the new replica
/// (D'Hondt's method). A function without demand gets one replica.
#[must_use]
pub fn apportion(demand: &[u64], budget: usize, most: u32) -> Vec<u32> {
    let mut replicas = vec![1_u32; demand.len()];
    let mut next: BinaryHeap<(u128, Reverse<usize>)> = demand
        .iter()
        .enumerate()
        .filter(|(_, demand)| **demand > 0 && most > 1)
        .map(|(function, demand)| (per_replica(*demand, 2), Reverse(function)))
        .collect();
    for _ in demand.len()..budget {
        let Some((_, Reverse(function))) = next.pop() else { break };
        let (Some(has), Some(demand)) = (replicas.get_mut(function), demand.get(function)) else { break };
        *has += 1;
        if *has < most {
            next.push((per_replica(*demand, *has + 1), Reverse(function)));
        }
    }
    replicas
}

/// Demand per replica as a fixed-point number with 32 fractional bits.
fn per_replica(demand: u64, replicas: u32) -> u128 {
    (u128::from(demand) << 32) / u128::from(replicas)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_busiest_get_the_most() {
        assert_eq!(apportion(&[90, 40, 0, 10], 8, 10), [4, 2, 1, 1]);
        assert_eq!(apportion(&[90, 40, 0, 10], 8, 3), [3, 3, 1, 1]);
        assert_eq!(apportion(&[5, 5], 1, 10), [1, 1], "nobody is without");
        assert_eq!(apportion(&[0, 0], 10, 10), [1, 1], "what is not used is not copied");
        assert_eq!(apportion(&[], 10, 10), [0; 0]);
    }

    proptest! {
        #[test]
        fn budget_and_order_are_kept(
            demand in prop::collection::vec(0_u64..1_000_000, 0..40), budget in 0_usize..200, most in 1_u32..9,
        ) {
            let replicas = apportion(&demand, budget, most);
            prop_assert_eq!(replicas.len(), demand.len());
            prop_assert!(replicas.iter().all(|replicas| (1..=most).contains(replicas)));
            let all: u32 = replicas.iter().sum();
            prop_assert!(all as usize <= budget.max(demand.len()));
            for (a, of_a) in demand.iter().zip(&replicas) {
                for (b, of_b) in demand.iter().zip(&replicas) {
                    prop_assert!(a <= b || of_a >= of_b, "{} has {}, {} has {}", a, of_a, b, of_b);
                }
            }
        }
    }
}
