//! Earliest deadline first: the job that is due first gets all devices but the minimums of the others.
//!
//! The allocation changes only when a job arrives or ends.

use super::{Limits, give_least};
use std::time::Duration;

/// A job with a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The deadline, on the caller's monotonic clock.
    pub deadline: Duration,
    /// Minimum and maximum number of devices.
    pub limits: Limits,
}

/// Number of devices of each job, in the order of `jobs`; the sum is at most `devices`. If the minimums do not fit,
/// the jobs that are due first get theirs.
#[must_use]
pub fn allocate(jobs: &[Due], devices: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    order.sort_by_key(|index| jobs.get(*index).map(|job| job.deadline));
    let limits = |index: usize| jobs.get(index).map_or(Limits::ANY, |job| job.limits);
    let mut given = vec![0; jobs.len()];
    let mut left = give_least(order.iter().copied(), limits, &mut given, devices);
    for index in order {
        if let Some(given) = given.get_mut(index) {
            let more = (limits(index).most() - *given).min(left);
            *given += more;
            left -= more;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn due(deadline: u64, least: u32, most: u32) -> Due {
        Due { deadline: Duration::from_secs(deadline), limits: Limits::new(least, most).unwrap() }
    }

    #[test]
    fn the_job_that_is_due_first_gets_all_but_the_least_of_the_others() {
        let any = u32::MAX;
        let table: [(&[Due], u32, &[u32]); 7] = [
            (&[due(50, 1, any), due(109, 1, any), due(195, 1, any)], 8, &[6, 1, 1]),
            (&[due(195, 0, any), due(50, 0, any)], 8, &[0, 8]),
            (&[due(195, 0, any), due(50, 0, 3), due(60, 0, 2)], 8, &[3, 3, 2]),
            // Of equal deadlines the job that came first is first.
            (&[due(50, 0, any), due(50, 1, any)], 4, &[3, 1]),
            // The minimums do not fit.
            (&[due(195, 3, any), due(50, 2, any)], 4, &[2, 2]),
            (&[due(1, 0, 2)], 8, &[2]),
            (&[], 8, &[]),
        ];
        for (jobs, devices, expected) in table {
            assert_eq!(allocate(jobs, devices), expected, "{jobs:?}");
        }
    }

    proptest! {
        #[test]
        fn no_device_is_given_twice_or_left_over_that_somebody_can_use(
            jobs in prop::collection::vec((0_u64..9, 0_u32..5, 0_u32..5), 0..9), devices in 0_u32..30,
        ) {
            let jobs: Vec<Due> = jobs.iter().map(|(at, least, more)| due(*at, *least, (least + more).max(1))).collect();
            let given = allocate(&jobs, devices);
            let sum: u32 = given.iter().sum();
            prop_assert!(sum <= devices);
            prop_assert!(jobs.iter().zip(&given).all(|(job, given)| *given <= job.limits.most()));
            if sum < devices {
                prop_assert!(jobs.iter().zip(&given).all(|(job, given)| *given == job.limits.most()));
            }
            if jobs.iter().map(|job| job.limits.least()).sum::<u32>() <= devices {
                prop_assert!(jobs.iter().zip(&given).all(|(job, given)| *given >= job.limits.least()));
            }
        }
    }
}
