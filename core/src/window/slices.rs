//! One quantity of the window in time slices of equal length, newest first; and how an amount is spread over them.
//!
//! Slice `index` of the time line covers `[index × width, (index + 1) × width)` milliseconds since the epoch.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Amounts per slice; trailing zeros are not kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Slices(VecDeque<u64>);

/// Where slices are on the time line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Line {
    /// Length of a slice, milliseconds; not 0.
    pub(super) width: u64,
    /// How many slices are kept.
    pub(super) count: usize,
    /// Index of the newest.
    pub(super) newest: u64,
}

/// An amount that was used evenly from `start` to `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) amount: u64,
}

impl Slices {
    /// Makes room for `by` newer slices on a line of `count`.
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

    /// Whether there is nothing in it.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Spreads `span` over the slices of `line`; what is older than the oldest is left out. The span must end in the
    /// newest slice or before.
    pub(super) fn add(&mut self, line: &Line, span: Span) {
        let Span { start, end, amount } = span;
        if amount == 0 {
            return;
        }
        let oldest = line.oldest();
        // A moment on an edge belongs to the time before it, as the end of a span does.
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

    /// Adds all of `other`.
    pub(super) fn add_all(&mut self, other: &Self) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (amount, more) in self.0.iter_mut().zip(&other.0) {
            *amount = amount.saturating_add(*more);
        }
    }

    /// Cuts every slice to what `slots` slots can use of it until `now`.
    pub(super) fn cap(&mut self, line: &Line, now: u64, slots: u64) {
        for (age, amount) in self.0.iter_mut().enumerate() {
            let begin = line.begin(age);
            let length = now.clamp(begin, begin.saturating_add(line.width)) - begin;
            *amount = (*amount).min(length.saturating_mul(slots));
        }
    }

    /// What was used before `moment`, as far back as it is kept; what is in a slice lies evenly on its part before `now`.
    fn until(&self, line: &Line, moment: u64, now: u64) -> u64 {
        let amounts = self.0.iter().enumerate().map(|(age, amount)| {
            let begin = line.begin(age);
            let end = begin.saturating_add(line.width).min(now).max(begin);
            if moment >= end {
                return u128::from(*amount);
            }
            let inside = moment.saturating_sub(begin);
            u128::from(*amount) * u128::from(inside) / u128::from((end - begin).max(1))
        });
        u64::try_from(amounts.sum::<u128>()).unwrap_or(u64::MAX)
    }

    /// Amounts in `count` steps of `step` milliseconds back from `now`, newest first.
    pub(super) fn steps(&self, line: &Line, now: u64, step: u64, count: usize) -> Vec<u64> {
        let mut upper = self.until(line, now, now);
        (1..=count as u64)
            .map(|index| {
                let lower = self.until(line, now.saturating_sub(index.saturating_mul(step)), now);
                let amount = upper.saturating_sub(lower);
                upper = lower;
                amount
            })
            .collect()
    }
}

impl Line {
    /// Index of the oldest slice that is kept.
    pub(super) fn oldest(&self) -> u64 {
        self.newest.saturating_sub(self.count as u64 - 1)
    }

    /// Begin of the slice that is `age` slices older than the newest.
    fn begin(&self, age: usize) -> u64 {
        self.newest.saturating_sub(age as u64).saturating_mul(self.width)
    }
}
