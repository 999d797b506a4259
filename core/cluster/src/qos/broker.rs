//! The broker: divides the devices among the jobs' requests.
//!
//! If all requests fit, jobs with a deadline share the rest. Otherwise the jobs that are farthest from their goal come
//! first. The limits of every job hold in both cases.

use super::controller::Request;
use super::{Limits, give_least};

/// A job's request and limits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bid {
    /// The request of the job's controller.
    pub request: Request,
    /// Minimum and maximum number of devices.
    pub limits: Limits,
    /// Whether the job benefits from more devices than it asked for.
    pub surplus: Surplus,
}

/// Whether a job benefits from more devices than it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    /// The job finishes earlier: it has a deadline.
    Welcome,
    /// The job does not benefit: it has a throughput goal.
    Useless,
}

/// Factor by which each further device of a job is less urgent, if the requests do not fit.
const DECAY: f64 = 0.75;

impl Bid {
    fn devices(&self) -> u32 {
        self.limits.clamp(self.request.devices)
    }
}

/// Number of devices of each job, in the order of `bids`; the sum is at most `devices`.
#[must_use]
pub fn allocate(bids: &[Bid], devices: u32) -> Vec<u32> {
    let mut given = requested(bids, devices);
    spread(bids, devices, &mut given);
    given
}

/// Number of devices of each job if none gets more than it asks for. The sum is at most `devices`; it is `devices` if
/// the requests do not fit.
#[must_use]
pub fn requested(bids: &[Bid], devices: u32) -> Vec<u32> {
    let asked: u64 = bids.iter().map(|bid| u64::from(bid.devices())).sum();
    if asked <= u64::from(devices) {
        bids.iter().map(Bid::devices).collect()
    } else {
        not_fitting(bids, devices)
    }
}

/// Gives jobs with a deadline the rest of the devices: first one device for each job that has none, then one each in
/// turn, the jobs farthest from their goal first.
fn spread(bids: &[Bid], devices: u32, given: &mut [u32]) {
    let mut left = devices.saturating_sub(given.iter().sum::<u32>());
    let welcome: Vec<usize> = worst_first(bids)
        .into_iter()
        .filter(|index| bids.get(*index).is_some_and(|bid| bid.surplus == Surplus::Welcome))
        .collect();
    let mut give = |index: usize, left: &mut u32, only_paused: bool| {
        let (Some(given), Some(bid)) = (given.get_mut(index), bids.get(index)) else { return false };
        let may = *left > 0 && *given < bid.limits.most() && (!only_paused || *given == 0);
        if may {
            *given += 1;
            *left -= 1;
        }
        may
    };
    for index in &welcome {
        give(*index, &mut left, true);
    }
    loop {
        let mut any = false;
        for index in &welcome {
            any |= give(*index, &mut left, false);
        }
        if !any {
            return;
        }
    }
}

/// Every job gets its minimum first. Then each job has an entry per requested device, p, 0.75 p, 0.75² p …, and the
/// lowest entries of all jobs get a device each.
fn not_fitting(bids: &[Bid], devices: u32) -> Vec<u32> {
    let limits = |index: usize| bids.get(index).map_or(Limits::ANY, |bid| bid.limits);
    let mut given = vec![0; bids.len()];
    let left = give_least(worst_first(bids).into_iter(), limits, &mut given, devices);
    let mut entries: Vec<(f64, usize)> = Vec::new();
    for (index, bid) in bids.iter().enumerate() {
        let mut priority = bid.request.performance;
        // The list is bounded by the number of devices, since a request may be unbounded. The minimum replaces the
        // job's last entries, which are its lowest.
        for _ in bid.limits.least()..bid.devices().min(devices) {
            entries.push((priority, index));
            priority *= DECAY;
        }
    }
    entries.sort_by(|a, b| a.0.total_cmp(&b.0));
    for (_, index) in entries.into_iter().take(left as usize) {
        if let Some(given) = given.get_mut(index) {
            *given += 1;
        }
    }
    given
}

/// Indexes into `bids`, the jobs farthest from their goal first.
pub(super) fn worst_first(bids: &[Bid]) -> Vec<usize> {
    let mut order: Vec<(f64, usize)> =
        bids.iter().enumerate().map(|(index, bid)| (bid.request.performance, index)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::super::controller::Lateness;
    use super::*;
    use proptest::prelude::*;

    fn bid(surplus: Surplus, devices: u32, performance: f64, least: u32, most: u32) -> Bid {
        let request = Request { devices, performance, lateness: Lateness::OnTime, usable: None };
        Bid { request, limits: Limits::new(least, most).unwrap(), surplus }
    }

    fn deadline(devices: u32, performance: f64) -> Bid {
        bid(Surplus::Welcome, devices, performance, 0, u32::MAX)
    }

    fn throughput(devices: u32, performance: f64) -> Bid {
        bid(Surplus::Useless, devices, performance, 0, u32::MAX)
    }

    #[test]
    fn the_rest_goes_to_deadline_jobs_in_turn() {
        let table: [(&[Bid], u32, &[u32]); 6] = [
            // Two devices are left: the job farther from its goal comes first.
            (&[deadline(2, 1.2), deadline(3, 0.9), throughput(1, 0.5)], 8, &[3, 4, 1]),
            (&[deadline(2, 1.2), deadline(3, 0.9), throughput(1, 0.5)], 7, &[2, 4, 1]),
            // The paused job comes before the one farthest from its goal.
            (&[deadline(0, 5.0), deadline(3, 0.9)], 4, &[1, 3]),
            // No job benefits from the rest.
            (&[throughput(2, 0.9)], 8, &[2]),
            (&[bid(Surplus::Welcome, 1, 1.0, 0, 2), throughput(1, 1.0)], 8, &[2, 1]),
            (&[], 8, &[]),
        ];
        for (bids, devices, expected) in table {
            assert_eq!(allocate(bids, devices), expected, "{bids:?}");
        }
    }

    #[test]
    fn too_many_requests_are_sorted_by_how_far_jobs_are_from_their_goals() {
        // 1.0, .75, .5625 against .8, .6, .45, .3375: the four lowest are .3375 .45 .5625 .6.
        assert_eq!(allocate(&[deadline(3, 1.0), throughput(4, 0.8)], 4), [1, 3]);
        // Its minimum replaces .5625: 1.0 and .75 remain, and .3375 .45 .6 are the lowest.
        let least = bid(Surplus::Welcome, 3, 1.0, 1, 3);
        assert_eq!(allocate(&[least, throughput(4, 0.8)], 4), [1, 3]);
        assert_eq!(allocate(&[bid(Surplus::Welcome, 3, 9.0, 2, 3), throughput(4, 0.8)], 4), [2, 2]);
        // Unbounded requests.
        assert_eq!(allocate(&[deadline(u32::MAX, 0.0), deadline(u32::MAX, 0.5)], 3), [3, 0]);
        // The minimums do not fit: the job farthest from its goal comes first.
        let hungry = |performance: f64| bid(Surplus::Useless, 9, performance, 3, 9);
        assert_eq!(allocate(&[hungry(0.9), hungry(0.1)], 4), [1, 3]);
    }

    proptest! {
        #[test]
        fn devices_are_given_once_and_limits_hold(
            jobs in prop::collection::vec((0_u32..12, 0.0_f64..3.0, 0_u32..4, 0_u32..6, prop::bool::ANY), 0..9),
            devices in 0_u32..40,
        ) {
            let bids: Vec<Bid> = jobs
                .iter()
                .map(|(request, performance, least, more, welcome)| {
                    let surplus = if *welcome { Surplus::Welcome } else { Surplus::Useless };
                    bid(surplus, *request, *performance, *least, (least + more).max(1))
                })
                .collect();
            let given = allocate(&bids, devices);
            let sum: u32 = given.iter().sum();
            prop_assert!(sum <= devices);
            prop_assert!(bids.iter().zip(&given).all(|(bid, given)| *given <= bid.limits.most()));
            if bids.iter().map(|bid| bid.limits.least()).sum::<u32>() <= devices {
                prop_assert!(bids.iter().zip(&given).all(|(bid, given)| *given >= bid.limits.least()));
            }
            if bids.iter().map(Bid::devices).sum::<u32>() <= devices {
                prop_assert!(bids.iter().zip(&given).all(|(bid, given)| *given >= bid.devices()));
            } else {
                prop_assert_eq!(sum, devices);
            }
        }
    }
}
