//! A synthetic trace with the statistics of the published one (S-9): 119 applications with 424 functions, a few of
//! which get most requests; timers, bursts and a daily rhythm; durations over five orders of magnitude.
//!
//! The rates per minute of S-9 are met as upper bounds only: a median of 29 requests in two weeks is far below one
//! per minute. Properties that S-9 leaves open (which functions are bursty, how long a burst is, which function has
//! which durations) are assumptions.

mod arrivals;
mod population;
#[cfg(test)]
mod tests;

use super::request::Request;
use crate::random::Random;
use crate::time::{Micros, SimTime};
use arrivals::Arrivals;
use population::Population;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Length of the trace in days.
pub const DAYS: f64 = 14.0;

/// Quantiles of durations, in seconds: the ones in S-9, and assumed ends.
const DURATIONS: [(f64, f64); 8] = [
    (0.0, 0.001),
    (0.25, 0.010),
    (0.5, 0.046),
    (0.6, 0.1),
    (0.75, 0.382),
    (0.95, 19.21),
    (0.99, 77.63),
    (1.0, 600.0),
];

/// Share of a function's requests with a duration from its own part of the distribution; the others draw from the
/// whole.
const OWN_DURATION: f64 = 0.8;

/// The requests of a synthetic trace.
pub struct Synthetic {
    functions: Vec<Function>,
    next: BinaryHeap<Reverse<(SimTime, u32)>>,
}

struct Function {
    app: u32,
    arrivals: Arrivals,
    /// The function's part of the distribution of durations: begin and length.
    own: (f64, f64),
    random: Random,
}

impl Synthetic {
    /// The trace of `seed` with about `requests` requests.
    #[must_use]
    pub fn new(seed: u64, requests: u64) -> Self {
        let Population { counts, apps, own_durations } = Population::new(seed, requests);
        let mut functions = Vec::with_capacity(counts.len());
        let mut next = BinaryHeap::with_capacity(counts.len());
        for (((index, count), app), own) in (0_u32..).zip(counts).zip(apps).zip(own_durations) {
            let mut random = Random::new(seed, 1_000 + u64::from(index));
            let mut arrivals = Arrivals::new(&mut random, count, app);
            if let Some(at) = arrivals.next(&mut random) {
                next.push(Reverse((at, index)));
            }
            functions.push(Function { app, arrivals, own, random });
        }
        Self { functions, next }
    }
}

impl Iterator for Synthetic {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let mut first = self.next.peek_mut()?;
        let Reverse((at, index)) = *first;
        let function = self.functions.get_mut(index as usize)?;
        let duration = function.duration();
        match function.arrivals.next(&mut function.random) {
            // Replacing the entry in place reorders the heap only once.
            Some(next) => *first = Reverse((next, index)),
            None => {
                std::collections::binary_heap::PeekMut::pop(first);
            }
        }
        Some(Request { at, duration, function: index, app: function.app })
    }
}

impl Function {
    fn duration(&mut self) -> Micros {
        let random = &mut self.random;
        let share =
            if random.chance(OWN_DURATION) { self.own.0 + self.own.1 * random.unit() } else { random.unit() };
        Micros::from_secs(duration_at(share))
    }
}

/// The duration in seconds at this share of the distribution, interpolated between the quantiles on a logarithmic
/// scale.
fn duration_at(share: f64) -> f64 {
    let above = DURATIONS.iter().position(|(at, _)| *at > share).unwrap_or(DURATIONS.len() - 1);
    let ((low, from), (high, to)) = (DURATIONS[above - 1], DURATIONS[above]);
    from * libm::exp(libm::log(to / from) * (share - low) / (high - low))
}
