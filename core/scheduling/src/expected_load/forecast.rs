//! The expected usage of a node's bound pods as a linear function of time.
//!
//! A decision reads thousands of nodes with tens of pods each, and most forecasts are valid for minutes. A forecast
//! ends with a new state of the node, other pods on it, or other means. It also ends at two foreseeable moments of a
//! pod: when the pod has been bound for a window, and when decay over time, instead of the measured usage, limits what
//! is expected.

use super::claims::{Claims, overlap};
use super::{Bound, means::Means, whole};
use crate::signals::AskedKind;
use crate::staleness::Received;
use crate::units::{Millis, MonotonicTime};
use foldhash::fast::FixedState;
use std::hash::BuildHasher as _;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The last forecast of each node, by the index of its pods. Decisions at about the same time share it. One lock for all:
/// a decision reads thousands of forecasts and rarely writes one.
#[derive(Debug, Default)]
pub(super) struct Forecasts(RwLock<Vec<LinearForecast>>);

/// A forecast and the time for which it is valid. By default it is valid at no time.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LinearForecast {
    /// Hash of the inputs of the forecast apart from the pods. A change of the pods discards the forecast.
    of: u64,
    from: MonotonicTime,
    until: MonotonicTime,
    usage: Line,
    unknown: Line,
    /// [`super::Expected::shown`].
    pub(super) shown: Millis,
    /// [`super::Expected::pods`].
    pub(super) pods: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    start: f64,
    fall_per_milli: f64,
}

impl Forecasts {
    pub(super) fn read(&self) -> RwLockReadGuard<'_, Vec<LinearForecast>> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn put(&self, forecasts: &[(usize, LinearForecast)]) {
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        for (index, forecast) in forecasts {
            if *index >= all.len() {
                all.resize_with(index + 1, LinearForecast::default);
            }
            all[*index] = *forecast;
        }
    }

    pub(super) fn forget(&mut self, index: usize) {
        let all = self.0.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(forecast) = all.get_mut(index) {
            *forecast = LinearForecast::default();
        }
    }
}

impl LinearForecast {
    /// The forecast from `now` on for `pods`, the one bound longest first, on the boards of the kind `asked`. `of` is a hash
    /// of all inputs but the pods.
    pub(super) fn of(
        pods: &[Bound],
        received: &Received,
        means: &Means,
        (asked, of): (&AskedKind, u64),
        now: MonotonicTime,
    ) -> Self {
        let (window, signals) = (received.state().window, received.signals());
        let claims = Claims::of(signals, pods.iter().map(|pod| (&pod.kind, 1.0)));
        let mut forecast = Self {
            of,
            from: now,
            until: MonotonicTime::NEVER,
            usage: Line::default(),
            unknown: Line::default(),
            shown: Millis::ZERO,
            pods: 0.0,
        };
        for pod in pods.iter().rev() {
            let elapsed = pod.elapsed(now);
            if elapsed >= window {
                break;
            }
            let share = overlap(signals, &pod.kind, asked);
            if share <= 0.0 {
                continue;
            }
            let decay = 1.0 - elapsed.0 as f64 / window.0 as f64;
            let shown = pod.shown(received, now) / claims.under(&pod.kind);
            forecast.pods += share;
            forecast.ends_in(window - elapsed);
            match means.expected(pod.owner.as_deref()) {
                Some(mean) => forecast.add(mean, decay, shown, share, window),
                None => {
                    forecast.unknown.add(decay * share, share / window.0 as f64);
                    forecast.shown += whole(shown * share);
                }
            }
        }
        forecast
    }

    /// Whether the forecast is valid at `now` for inputs with the hash `of`.
    pub(super) fn is_valid(&self, of: u64, now: MonotonicTime) -> bool {
        self.of == of && (self.from..self.until).contains(&now)
    }

    /// The usage that is still expected, in milliseconds, and the number of pods without a known mean.
    pub(super) fn at(&self, now: MonotonicTime) -> (f64, f64) {
        let passed = (now - self.from).0 as f64;
        (self.usage.at(passed), self.unknown.at(passed))
    }

    /// Adds a pod with the usage `mean` per window, both in milliseconds: time has left the share `decay` of it,
    /// `shown` is measured already, and the share `share` falls on the boards.
    fn add(&mut self, mean: f64, decay: f64, shown: f64, share: f64, window: Millis) {
        let (by_time, not_shown) = (mean * decay, mean - shown);
        if not_shown <= 0.0 {
            return;
        }
        if by_time <= not_shown {
            self.usage.add(by_time * share, mean * share / window.0 as f64);
            return;
        }
        self.usage.add(not_shown * share, 0.0);
        // Valid until the decay reaches `not_shown`.
        self.ends_in(whole((by_time - not_shown) / mean * window.0 as f64));
    }

    fn ends_in(&mut self, time: Millis) {
        self.until = self.until.min(self.from + time.max(Millis(1)));
    }
}

/// Hash of what the forecasts of all nodes are made of.
pub(super) fn inputs(means: &Means, asked: &AskedKind) -> u64 {
    FixedState::default().hash_one((means.generation(), asked))
}

impl Line {
    fn add(&mut self, start: f64, fall_per_milli: f64) {
        self.start += start;
        self.fall_per_milli += fall_per_milli;
    }

    fn at(self, passed: f64) -> f64 {
        (self.start - self.fall_per_milli * passed).max(0.0)
    }
}
