//! Who gets how many devices when jobs have asked.
//!
//! Where all requests fit, deadline jobs share what is left; where they don't, those that do worst against their goal
//! go first. The least and the most that a job can use hold in any case.

use super::controller::Request;
use super::{Limits, give_least};

/// A job's request as the broker sees it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bid {
    /// What it asks for.
    pub request: Request,
    /// What it can use.
    pub limits: Limits,
    /// Whether more is of use to it.
    pub surplus: Surplus,
}

/// Whether a job is better off with more devices than it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Surplus {
    /// It ends earlier: one with a deadline.
    Welcome,
    /// No: one with a throughput goal.
    Useless,
}

/// How much less urgent each further device of a job is that cannot have all.
const DECAY: f64 = 0.75;

impl Bid {
    fn devices(&self) -> u32 {
        self.limits.clamp(self.request.devices)
    }
}

/// Devices of each job, in the order of `bids`; together at most `devices`.
#[must_use]
pub fn allocate(bids: &[Bid], devices: u32) -> Vec<u32> {
    let asked: u64 = bids.iter().map(|bid| u64::from(bid.devices())).sum();
    if asked <= u64::from(devices) { fitting(bids, devices) } else { not_fitting(bids, devices) }
}

/// Everybody gets what they asked for, deadline jobs the rest: first one device to each that has none, then in turn,
/// those that do worst before others.
fn fitting(bids: &[Bid], devices: u32) -> Vec<u32> {
    let mut given: Vec<u32> = bids.iter().map(Bid::devices).collect();
    let mut left = devices - given.iter().sum::<u32>();
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
            return given;
        }
    }
}

/// Each job offers an entry for each device that it asked for, p, 0.75 p, 0.75² p …; the lowest ones get a device. The
/// least of every job comes before that.
fn not_fitting(bids: &[Bid], devices: u32) -> Vec<u32> {
    let limits = |index: usize| bids.get(index).map_or(Limits::ANY, |bid| bid.limits);
    let mut given = vec![0; bids.len()];
    let left = give_least(worst_first(bids).into_iter(), limits, &mut given, devices);
    let mut entries: Vec<(f64, usize)> = Vec::new();
    for (index, bid) in bids.iter().enumerate() {
        let mut priority = bid.request.performance;
        // More than all devices can't be given: a request without bounds makes no list without bounds.
        // Its least stands for its last entries, the lowest ones.
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

/// Places in `bids`, those that do worst against their goal first.
fn worst_first(bids: &[Bid]) -> Vec<usize> {
    let mut order: Vec<(f64, usize)> =
        bids.iter().enumerate().map(|(index, bid)| (bid.request.performance, index)).collect();
    order.sort_by(|a, b| a.0.total_cmp(&b.0));
    order.into_iter().map(|(_, index)| index).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bid(surplus: Surplus, devices: u32, performance: f64, least: u32, most: u32) -> Bid {
        Bid { request: Request { devices, performance }, limits: Limits::new(least, most).unwrap(), surplus }
    }

    fn deadline(devices: u32, performance: f64) -> Bid {
        bid(Surplus::Welcome, devices, performance, 0, u32::MAX)
    }

    fn throughput(devices: u32, performance: f64) -> Bid {
        bid(Surplus::Useless, devices, performance, 0, u32::MAX)
    }

    #[test]
    fn what_is_left_goes_to_deadline_jobs_in_turn() {
        let table: [(&[Bid], u32, &[u32]); 6] = [
            // 2 left: the worse first.
            (&[deadline(2, 1.2), deadline(3, 0.9), throughput(1, 0.5)], 8, &[3, 4, 1]),
            (&[deadline(2, 1.2), deadline(3, 0.9), throughput(1, 0.5)], 7, &[2, 4, 1]),
            // The paused one is before the worst.
            (&[deadline(0, 5.0), deadline(3, 0.9)], 4, &[1, 3]),
            // Nobody wants the rest.
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
        // Its least is its .5625: 1.0 and .75 are left of it, and .3375 .45 .6 are the lowest.
        let least = bid(Surplus::Welcome, 3, 1.0, 1, 3);
        assert_eq!(allocate(&[least, throughput(4, 0.8)], 4), [1, 3]);
        assert_eq!(allocate(&[bid(Surplus::Welcome, 3, 9.0, 2, 3), throughput(4, 0.8)], 4), [2, 2]);
        // Requests without bounds.
        assert_eq!(allocate(&[deadline(u32::MAX, 0.0), deadline(u32::MAX, 0.5)], 3), [3, 0]);
        // Not even the least of all: the worst first.
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
