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

/// A forecast and the time for which it is valid.
#[derive(Debug, Clone, Copy)]
pub(super) struct LinearForecast {
    of: ForecastKey,
    from: MonotonicTime,
    until: MonotonicTime,
    usage: Line,
    unknown: Line,
    /// [`super::Expected::shown`].
    pub(super) shown: Millis,
    /// [`super::Expected::pods`].
    pub(super) pods: f64,
}

/// The inputs of a forecast apart from the pods. A change of the pods discards the forecast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ForecastKey {
    signals: u64,
    received: (MonotonicTime, Millis),
    means: u64,
    asked: AskedKind,
}

#[derive(Debug, Clone, Copy, Default)]
struct Line {
    start: f64,
    fall_per_milli: f64,
}

impl LinearForecast {
    /// The forecast from `now` on for `pods`, the one bound longest first, on the boards of the kind `asked`.
    pub(super) fn of(
        pods: &[Bound],
        received: &Received,
        means: &Means,
        asked: &AskedKind,
        now: MonotonicTime,
    ) -> Self {
        let (window, signals) = (received.state().window, received.signals());
        let claims = Claims::of(signals, pods.iter().map(|pod| (&pod.kind, 1.0)));
        let mut forecast = Self {
            of: ForecastKey::of(received, means, asked),
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

    /// Whether the forecast is valid at `now` for this state, these means and this kind.
    pub(super) fn is_valid(
        &self,
        received: &Received,
        means: &Means,
        asked: &AskedKind,
        now: MonotonicTime,
    ) -> bool {
        (self.from..self.until).contains(&now) && self.of == ForecastKey::of(received, means, asked)
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

impl ForecastKey {
    fn of(received: &Received, means: &Means, asked: &AskedKind) -> Self {
        Self {
            signals: received.signals().fingerprint(),
            received: (received.received_at(), received.age_at_receipt()),
            means: means.generation(),
            asked: *asked,
        }
    }
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
