//! Admission of new jobs.

use super::{JobId, Limits};

/// A running job, as the admission of a new job sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Running {
    /// Id of the job.
    pub id: JobId,
    /// Number of devices that the job has.
    pub devices: u32,
    /// Number of devices that the job asks for.
    pub request: u32,
    /// Minimum and maximum number of devices.
    pub limits: Limits,
}

/// The decision about a new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admission {
    /// The job starts.
    Admitted {
        /// Number of devices; with 0 the job pauses until the next decision.
        devices: u32,
        /// Numbers of devices that are taken from other jobs.
        taken: Vec<(JobId, u32)>,
    },
    /// The job would not get its minimum.
    Rejected {
        /// Number of missing devices.
        missing: u32,
    },
}

/// Decides about a new job. The job gets the `free` devices if they are enough. Otherwise devices are taken from jobs
/// that have more than they ask for, from the largest surplus first, until the new job has its minimum, or one device
/// if its minimum is 0.
#[must_use]
pub fn admit(running: &[Running], free: u32, limits: Limits) -> Admission {
    let wanted = limits.least().max(1);
    if free >= wanted {
        return Admission::Admitted { devices: free.min(limits.most()), taken: Vec::new() };
    }
    let mut surplus: Vec<(u32, JobId, u32)> = running
        .iter()
        .map(|job| (job.devices.saturating_sub(job.limits.clamp(job.request)), job.id, 0))
        .collect();
    let mut devices = free;
    while devices < wanted {
        // The first job with the largest surplus.
        let Some((left, _, taken)) = surplus.iter_mut().rev().max_by_key(|(left, ..)| *left) else { break };
        if *left == 0 {
            break;
        }
        *left -= 1;
        *taken += 1;
        devices += 1;
    }
    if devices < limits.least() {
        return Admission::Rejected { missing: limits.least() - devices };
    }
    let taken =
        surplus.into_iter().filter(|(_, _, taken)| *taken > 0).map(|(_, id, taken)| (id, taken)).collect();
    Admission::Admitted { devices, taken }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn running(id: u64, devices: u32, request: u32) -> Running {
        Running { id: JobId(id), devices, request, limits: Limits::ANY }
    }

    fn least(least: u32) -> Limits {
        Limits::new(least, 100).unwrap()
    }

    #[test]
    fn a_new_job_gets_free_devices_first_and_then_the_surplus_of_others() {
        let admitted = |devices: u32, taken: &[(u64, u32)]| Admission::Admitted {
            devices,
            taken: taken.iter().map(|(id, taken)| (JobId(*id), *taken)).collect(),
        };
        let rich = [running(1, 5, 4), running(2, 6, 3)];
        assert_eq!(admit(&[], 8, Limits::ANY), admitted(8, &[]));
        assert_eq!(admit(&rich, 3, least(2)), admitted(3, &[]));
        assert_eq!(admit(&rich, 3, Limits::new(1, 2).unwrap()), admitted(2, &[]));
        assert_eq!(admit(&rich, 0, Limits::ANY), admitted(1, &[(2, 1)]));
        assert_eq!(admit(&rich, 0, least(4)), admitted(4, &[(1, 1), (2, 3)]));
        assert_eq!(admit(&rich, 1, least(6)), Admission::Rejected { missing: 1 });
        // There is no surplus: a job that may pause does so, one that may not is refused.
        let poor = [running(1, 4, 4), running(2, 4, 9)];
        assert_eq!(admit(&poor, 0, Limits::ANY), admitted(0, &[]));
        assert_eq!(admit(&poor, 0, least(1)), Admission::Rejected { missing: 1 });
        // A job's minimum is no surplus.
        let kept = Running { limits: least(4), ..running(1, 5, 0) };
        assert_eq!(admit(&[kept], 0, least(2)), Admission::Rejected { missing: 1 });
    }

    proptest! {
        #[test]
        fn no_job_loses_devices_that_it_asks_for(
            jobs in prop::collection::vec((0_u32..9, 0_u32..9, 0_u32..4), 0..6), free in 0_u32..5, wants in 0_u32..12,
        ) {
            let jobs: Vec<Running> = (0..)
                .zip(jobs)
                .map(|(id, (devices, request, most))| Running { limits: least(most), ..running(id, devices, request) })
                .collect();
            if let Admission::Admitted { devices, taken } = admit(&jobs, free, least(wants)) {
                let sum: u32 = taken.iter().map(|(_, taken)| taken).sum();
                prop_assert!(devices <= free + sum);
                prop_assert!(devices >= wants);
                for (id, taken) in taken {
                    let job = jobs.iter().find(|job| job.id == id).unwrap();
                    prop_assert!(job.devices - taken >= job.limits.clamp(job.request));
                }
            }
        }
    }
}
