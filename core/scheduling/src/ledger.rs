//! The numbers of the events that were counted, so that a retried event counts once.
//!
//! The ledger has, per reporter, a watermark below which every event was counted, and a bounded set of ranges above
//! it, since batches may overtake each other. Moments are arguments, of the monotonic clock; they only tell which
//! reporters are silent. Sequence numbers alone decide what counts, so a step of the wall clock makes no event count
//! twice.

use crate::units::{Millis, MonotonicTime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum number of reporters that the ledger remembers. A node has one reporter per process of a device runtime.
pub const MAX_REPORTERS: usize = 1024;

/// Maximum number of ranges above a reporter's watermark. Beyond it the ledger gives up the oldest gap: events of that
/// gap are treated as counted.
pub const MAX_RANGES: usize = 64;

/// The numbers that were counted, per reporter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ledger {
    /// Time after its last event at which a silent reporter may be forgotten: a later retry is older than the window.
    retention: Millis,
    reporters: BTreeMap<u64, Reporter>,
    /// Number of gaps that were given up.
    gaps_given_up: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Reporter {
    /// All numbers up to and including this one were counted.
    watermark: u64,
    /// Counted ranges above the watermark, from first number to last. No range touches another or the watermark.
    ranges: BTreeMap<u64, u64>,
    reported_at: MonotonicTime,
}

/// Whether the numbers of an event were counted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// None was counted before.
    New(Order),
    /// Some were counted before.
    Partly {
        /// Number of sequence numbers that were not counted before.
        new: u64,
        /// Number of sequence numbers that the event covers.
        of: u64,
    },
    /// All were counted before.
    Duplicate,
}

/// Whether later events of the reporter were counted before this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The event is the newest of its reporter.
    Newest,
    /// Newer events of the reporter were counted before.
    Late,
}

/// The ledger is full of reporters that are still active.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_REPORTERS} reporters are active already; no other is taken until one falls silent")]
pub struct TooManyReporters;

impl Ledger {
    /// An empty ledger that remembers a reporter for `retention` after its last event. `retention` must be at least
    /// the length of the window.
    #[must_use]
    pub const fn new(retention: Millis) -> Self {
        Self { retention, reporters: BTreeMap::new(), gaps_given_up: 0 }
    }

    /// Makes room for `reporters`, if necessary by forgetting silent ones.
    ///
    /// # Errors
    /// [`TooManyReporters`] if too many reporters are active; the ledger is unchanged then.
    pub fn make_room(
        &mut self,
        reporters: impl IntoIterator<Item = u64>,
        now: MonotonicTime,
    ) -> Result<(), TooManyReporters> {
        let mut unknown: Vec<_> =
            reporters.into_iter().filter(|reporter| !self.reporters.contains_key(reporter)).collect();
        unknown.sort_unstable();
        unknown.dedup();
        let excess = (self.reporters.len() + unknown.len()).saturating_sub(MAX_REPORTERS);
        if excess == 0 {
            return Ok(());
        }
        let mut silent: Vec<_> = self
            .reporters
            .iter()
            .filter(|(_, entry)| now - entry.reported_at >= self.retention)
            .map(|(reporter, entry)| (entry.reported_at, *reporter))
            .collect();
        if silent.len() < excess {
            return Err(TooManyReporters);
        }
        silent.sort_unstable();
        for (_, reporter) in &silent[..excess] {
            self.reporters.remove(reporter);
        }
        Ok(())
    }

    /// Marks the numbers `first..=last` of `reporter` as counted and answers which of them were counted before. A
    /// `first` of 0 is taken as 1.
    ///
    /// Call [`Self::make_room`] first: this method accepts a new reporter even if the ledger is full.
    pub fn record(&mut self, reporter: u64, first: u64, last: u64, now: MonotonicTime) -> Verdict {
        let entry = self.reporters.entry(reporter).or_insert_with(|| Reporter {
            watermark: 0,
            ranges: BTreeMap::new(),
            reported_at: now,
        });
        entry.reported_at = entry.reported_at.max(now);
        let first = first.max(1);
        if last < first {
            return Verdict::Duplicate;
        }
        let of = (last - first).saturating_add(1);
        let order = if first > entry.newest() { Order::Newest } else { Order::Late };
        let known = entry.known_in(first, last);
        if known == of {
            return Verdict::Duplicate;
        }
        entry.insert(first, last);
        self.gaps_given_up += entry.bound();
        if known == 0 { Verdict::New(order) } else { Verdict::Partly { new: of - known, of } }
    }

    /// Number of reporters that the ledger remembers.
    #[must_use]
    pub fn reporters(&self) -> usize {
        self.reporters.len()
    }

    /// Number of gaps that were given up because a reporter had too many ranges.
    #[must_use]
    pub const fn gaps_given_up(&self) -> u64 {
        self.gaps_given_up
    }
}

impl Reporter {
    /// The newest number that was counted.
    fn newest(&self) -> u64 {
        self.ranges.last_key_value().map_or(self.watermark, |(_, last)| *last)
    }

    /// Number of sequence numbers of `first..=last` that were counted.
    fn known_in(&self, first: u64, last: u64) -> u64 {
        let below = if first <= self.watermark { self.watermark.min(last) - first + 1 } else { 0 };
        let above: u64 = self
            .ranges
            .range(..=last)
            .rev()
            .take_while(|(_, range_last)| **range_last >= first)
            .map(|(range_first, range_last)| (*range_last).min(last) - (*range_first).max(first) + 1)
            .sum();
        below + above
    }

    /// Adds `first..=last` and joins ranges that touch.
    fn insert(&mut self, mut first: u64, mut last: u64) {
        while let Some((range_first, range_last)) =
            self.ranges.range(..=last.saturating_add(1)).next_back().map(|(a, b)| (*a, *b))
        {
            if range_last.saturating_add(1) < first {
                break;
            }
            self.ranges.remove(&range_first);
            first = first.min(range_first);
            last = last.max(range_last);
        }
        if first <= self.watermark.saturating_add(1) {
            self.watermark = self.watermark.max(last);
        } else {
            self.ranges.insert(first, last);
        }
    }

    /// Gives up the oldest gaps until at most [`MAX_RANGES`] ranges are left. Returns the number of gaps given up.
    fn bound(&mut self) -> u64 {
        let mut given_up = 0;
        while self.ranges.len() > MAX_RANGES {
            if let Some((_, last)) = self.ranges.pop_first() {
                self.watermark = last;
                given_up += 1;
            }
        }
        given_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const RETENTION: Millis = Millis::from_secs(300);
    const NEW: Verdict = Verdict::New(Order::Newest);

    fn mk_ledger() -> Ledger {
        Ledger::new(RETENTION)
    }

    #[test]
    fn a_retried_event_counts_once() {
        let mut ledger = mk_ledger();
        assert_eq!(ledger.record(7, 1, 1, MonotonicTime::START), NEW);
        assert_eq!(ledger.record(7, 1, 1, MonotonicTime(1)), Verdict::Duplicate);
        assert_eq!(ledger.record(8, 1, 1, MonotonicTime(1)), NEW, "another reporter's numbers are its own");
    }

    #[test]
    fn batches_may_overtake_each_other() {
        let mut ledger = mk_ledger();
        assert_eq!(ledger.record(7, 3, 4, MonotonicTime::START), NEW);
        assert_eq!(ledger.record(7, 1, 2, MonotonicTime::START), Verdict::New(Order::Late));
        assert_eq!(ledger.record(7, 5, 5, MonotonicTime::START), NEW);
        assert!((1..=5).all(|seq| ledger.record(7, seq, seq, MonotonicTime::START) == Verdict::Duplicate));
        assert!(ledger.reporters[&7].ranges.is_empty(), "what touches is joined");
    }

    #[test]
    fn a_sum_of_which_a_part_was_counted_counts_for_the_rest() {
        let mut ledger = mk_ledger();
        ledger.record(7, 2, 3, MonotonicTime::START);
        assert_eq!(ledger.record(7, 1, 10, MonotonicTime::START), Verdict::Partly { new: 8, of: 10 });
        assert_eq!(ledger.record(7, 1, 10, MonotonicTime::START), Verdict::Duplicate);
    }

    #[test]
    fn too_many_gaps_cost_the_oldest_and_are_counted() {
        let mut ledger = mk_ledger();
        for n in 1..=MAX_RANGES as u64 + 1 {
            ledger.record(7, 2 * n, 2 * n, MonotonicTime::START);
        }
        assert_eq!(ledger.gaps_given_up(), 1);
        assert_eq!(ledger.record(7, 1, 1, MonotonicTime::START), Verdict::Duplicate);
        assert_eq!(ledger.record(7, 3, 3, MonotonicTime::START), Verdict::New(Order::Late));
    }

    #[test]
    fn a_flood_of_reporters_is_refused_and_forgets_no_active_reporter() {
        let mut ledger = mk_ledger();
        for reporter in 0..MAX_REPORTERS as u64 {
            ledger.make_room([reporter], MonotonicTime(reporter)).unwrap();
            ledger.record(reporter, 1, 1, MonotonicTime(reporter));
        }
        assert_eq!(ledger.make_room([0, 1], MonotonicTime(500)), Ok(()));
        assert_eq!(ledger.make_room([5000], MonotonicTime(500)), Err(TooManyReporters));
        let later = MonotonicTime(1) + RETENTION;
        assert_eq!(ledger.make_room([5000, 5000, 5001], later), Ok(()));
        assert_eq!(ledger.reporters(), MAX_REPORTERS - 2);
        assert_eq!(ledger.record(2, 1, 1, later), Verdict::Duplicate);
    }

    #[test]
    fn the_widest_range_overflows_nothing() {
        let mut ledger = mk_ledger();
        assert_eq!(ledger.record(7, 0, u64::MAX, MonotonicTime::START), NEW);
        assert_eq!(ledger.record(7, u64::MAX, u64::MAX, MonotonicTime::START), Verdict::Duplicate);
        ledger.record(8, u64::MAX, u64::MAX, MonotonicTime::START);
        assert_eq!(
            ledger.record(8, 1, u64::MAX, MonotonicTime::START),
            Verdict::Partly { new: u64::MAX - 1, of: u64::MAX }
        );
    }

    proptest! {
        #[test]
        fn in_any_order_and_however_often_each_number_is_new_once(
            ranges in prop::collection::vec((1_u64..80, 1_u64..6), 1..200),
        ) {
            let mut ledger = mk_ledger();
            let mut model = BTreeSet::new();
            for (first, length) in ranges {
                let last = first + length - 1;
                let known = (first..=last).filter(|seq| model.contains(seq)).count() as u64;
                let newest = model.last().copied().unwrap_or(0);
                let expected = if known == length {
                    Verdict::Duplicate
                } else if known > 0 {
                    Verdict::Partly { new: length - known, of: length }
                } else if first > newest {
                    NEW
                } else {
                    Verdict::New(Order::Late)
                };
                prop_assert_eq!(ledger.record(7, first, last, MonotonicTime::START), expected);
                model.extend(first..=last);
            }
        }

        #[test]
        fn memory_is_bounded_whatever_the_numbers(seqs in prop::collection::vec(1_u64.., 1..500)) {
            let mut ledger = mk_ledger();
            for seq in seqs {
                ledger.record(7, seq, seq, MonotonicTime::START);
                prop_assert!(ledger.reporters[&7].ranges.len() <= MAX_RANGES);
                prop_assert_eq!(ledger.record(7, seq, seq, MonotonicTime::START), Verdict::Duplicate);
            }
        }
    }
}
