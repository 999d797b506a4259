//! One quantity of the window in time slices of equal length, newest first.
//!
//! Slice `index` of the time line covers `[index × width, (index + 1) × width)` milliseconds since the clock's start.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Amount per slice, without trailing zeros.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Slices(VecDeque<u64>);

/// The position of the slices on the time line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Length of a slice in milliseconds; not 0.
    pub(super) width: u64,
    /// Maximum number of slices.
    pub(super) count: usize,
    /// Index of the newest slice.
    pub(super) newest: u64,
}

/// An amount spread evenly from `start` to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) amount: u64,
}

impl Slices {
    /// Adds `by` empty newer slices and drops those beyond `count`.
    pub(super) fn advance(&mut self, by: u64, count: usize) {
        if self.0.is_empty() {
            return;
        }
        let by = usize::try_from(by).unwrap_or(usize::MAX).min(count);
        for _ in 0..by {
            self.0.push_front(0);
        }
        self.0.truncate(count);
        while self.0.back() == Some(&0) {
            self.0.pop_back();
        }
    }

    /// Whether all amounts are 0.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Spreads `span` over the slices of `line`. The part before the oldest slice is dropped. The span must end in the
    /// newest slice or before.
    pub(super) fn add(&mut self, line: &Line, span: Span) {
        let Span { start, end, amount } = span;
        if amount == 0 {
            return;
        }
        let oldest = line.oldest();
        // A moment on an edge belongs to the slice before it, since it is the end of a span.
        let last = (end.saturating_sub(1) / line.width).min(line.newest);
        if start >= end {
            if last >= oldest {
                self.put(line, last, amount);
            }
            return;
        }
        let length = u128::from(end - start);
        let until = |edge: u64| {
            let share = u128::from(amount) * u128::from(edge.clamp(start, end) - start) / length;
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        for index in (start / line.width).max(oldest)..=last {
            let edge = index.saturating_mul(line.width);
            self.put(line, index, until(edge.saturating_add(line.width)) - until(edge));
        }
    }

    fn put(&mut self, line: &Line, index: u64, amount: u64) {
        let Ok(age) = usize::try_from(line.newest - index) else { return };
        if amount == 0 || age >= line.count {
            return;
        }
        if self.0.len() <= age {
            self.0.resize(age + 1, 0);
        }
        self.0[age] = self.0[age].saturating_add(amount);
    }

    /// Adds the amounts of `other`.
    pub(super) fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (amount, more) in self.0.iter_mut().zip(&other.0) {
            *amount = amount.saturating_add(*more);
        }
    }

    /// Limits every slice to what `slots` slots can do in it until `now`.
    pub(super) fn cap(&mut self, line: &Line, now: u64, slots: u64) {
        // Only the newest slice is incomplete, except near the start of the clock.
        let newest = now.saturating_sub(line.begin(0)).min(line.width);
        let older = if line.newest == 0 { now.min(line.width) } else { line.width };
        for amount in &mut self.0 {
            *amount = (*amount).min(older.saturating_mul(slots));
        }
        if let Some(amount) = self.0.front_mut() {
            *amount = (*amount).min(newest.saturating_mul(slots));
        }
    }

    /// The amounts in `count` steps of `step` milliseconds back from `now`, newest first. The amount of a slice is
    /// spread evenly over the part of the slice before `now`.
    ///
    /// One pass over the slices computes all steps, since collectors publish often: slices and steps are both ordered
    /// by time.
    pub(super) fn steps(&self, line: &Line, now: u64, step: u64, count: usize) -> Vec<u64> {
        let end = |age: usize| {
            let begin = line.begin(age);
            begin.saturating_add(line.width).min(now).max(begin)
        };
        // Number of newest slices that end after the moment, and the sum of the older ones.
        let mut over = 0;
        let mut whole: u128 = self.0.iter().map(|amount| u128::from(*amount)).sum();
        let mut until = |moment: u64| {
            while let Some(amount) = self.0.get(over)
                && moment < end(over)
            {
                whole -= u128::from(*amount);
                over += 1;
            }
            let begun = (0..over).rev().take_while(|age| line.begin(*age) < moment);
            let parts = begun.filter_map(|age| {
                let begin = line.begin(age);
                Some(part(*self.0.get(age)?, moment - begin, (end(age) - begin).max(1)))
            });
            u64::try_from(whole + parts.sum::<u128>()).unwrap_or(u64::MAX)
        };
        let mut upper = until(now);
        (1..=count as u64)
            .map(|index| {
                let lower = until(now.saturating_sub(index.saturating_mul(step)));
                let amount = upper.saturating_sub(lower);
                upper = lower;
                amount
            })
            .collect()
    }
}

/// `amount × inside / length`. 128-bit division is slow and hardly ever needed.
fn part(amount: u64, inside: u64, length: u64) -> u128 {
    match amount.checked_mul(inside) {
        Some(product) => u128::from(product / length),
        None => u128::from(amount) * u128::from(inside) / u128::from(length),
    }
}

impl Line {
    /// Index of the oldest slice.
    pub(super) fn oldest(&self) -> u64 {
        self.newest.saturating_sub(self.count as u64 - 1)
    }

    /// Start of the slice that is `age` slices older than the newest.
    fn begin(&self, age: usize) -> u64 {
        self.newest.saturating_sub(age as u64).saturating_mul(self.width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The amount before `moment`, computed slice by slice.
    fn until(slices: &Slices, line: &Line, moment: u64, now: u64) -> u128 {
        let amounts = slices.0.iter().enumerate().map(|(age, amount)| {
            let begin = line.begin(age);
            let end = begin.saturating_add(line.width).min(now).max(begin);
            if moment >= end {
                return u128::from(*amount);
            }
            u128::from(*amount) * u128::from(moment.saturating_sub(begin)) / u128::from((end - begin).max(1))
        });
        amounts.sum()
    }

    proptest! {
        #[test]
        fn a_slice_holds_what_the_slots_can_do_of_it_until_now(
            amounts in prop::collection::vec(0_u64..20_000, 0..40),
            (width, newest, into) in (1_u64..2_000, 0_u64..60, 0.0..1.0_f64), slots in 0_u64..9,
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than the width")]
            let now = newest * width + (into * width as f64) as u64;
            let line = Line { width, count: 40, newest };
            let most = |age: usize| (now.clamp(line.begin(age), line.begin(age) + width) - line.begin(age)) * slots;
            let expected = amounts.iter().enumerate().map(|(age, amount)| *amount.min(&most(age))).collect();
            let mut slices = Slices(amounts.into());
            slices.cap(&line, now, slots);
            prop_assert_eq!(slices, Slices(expected));
        }

        // The cases include moments near the start of the clock.
        #[test]
        fn one_pass_gives_the_same_steps_as_a_sum_per_moment(
            amounts in prop::collection::vec(prop_oneof![0_u64..5_000, Just(u64::MAX)], 0..40),
            (width, newest, into) in (1_u64..2_000, 0_u64..60, 0.0..1.0_f64),
            (step, count) in (1_u64..5_000, 0_usize..40),
        ) {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "less than the width")]
            let now = newest * width + (into * width as f64) as u64;
            let line = Line { width, count: 40, newest };
            let slices = Slices(amounts.into());
            let before = |index: u64| {
                let sum = until(&slices, &line, now.saturating_sub(index * step), now);
                u64::try_from(sum).unwrap_or(u64::MAX)
            };
            let expected: Vec<u64> =
                (0..count as u64).map(|index| before(index).saturating_sub(before(index + 1))).collect();
            prop_assert_eq!(slices.steps(&line, now, step, count), expected);
        }
    }
}
