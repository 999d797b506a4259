//! What is expected of a node's bound pods, as a function of time: between two moments at which something changes but the
//! time, it is a straight line.
//!
//! A decision looks at thousands of nodes with tens of pods each, and most of these lines hold for minutes. What ends one:
//! another state of the node, other pods on it, other means; and the moments that are foretold, at which a pod has been there
//! for a window, or less than what is not yet shown of it is left by time.

use super::claims::{Claims, overlap};
use super::{Bound, means::Means, whole};
use crate::signals::AskedKind;
use crate::staleness::Received;
use crate::units::{Millis, MonotonicTime};

/// A line, and from when to when it holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    of: Circumstances,
    from: MonotonicTime,
    until: MonotonicTime,
    usage: Line,
    unknown: Line,
    /// As in [`super::Expected`].
    pub(super) shown: Millis,
    /// As in [`super::Expected`].
    pub(super) pods: f64,
}

/// What a line was drawn for, beside the pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Circumstances {
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

impl Piece {
    /// The line from `now` on, for these pods, the longest there first, and the boards of the kind `asked`.
    pub(super) fn of(
        pods: &[Bound],
        received: &Received,
        means: &Means,
        asked: &AskedKind,
        now: MonotonicTime,
    ) -> Self {
        let (window, signals) = (received.state().window, received.signals());
        let claims = Claims::of(signals, pods.iter().map(|pod| (&pod.kind, 1.0)));
        let mut piece = Self {
            of: Circumstances::of(received, means, asked),
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
            piece.pods += share;
            piece.ends_in(window - elapsed);
            match means.expected(pod.owner.as_deref()) {
                Some(mean) => piece.add(mean, decay, shown, share, window),
                None => {
                    piece.unknown.add(decay * share, share / window.0 as f64);
                    piece.shown += whole(shown * share);
                }
            }
        }
        piece
    }

    /// Whether the line holds for this state and these means, now.
    pub(super) fn holds(
        &self,
        received: &Received,
        means: &Means,
        asked: &AskedKind,
        now: MonotonicTime,
    ) -> bool {
        (self.from..self.until).contains(&now) && self.of == Circumstances::of(received, means, asked)
    }

    /// Usage that is still expected, in milliseconds, and how many unknown pods.
    pub(super) fn at(&self, now: MonotonicTime) -> (f64, f64) {
        let passed = (now - self.from).0 as f64;
        (self.usage.at(passed), self.unknown.at(passed))
    }

    /// A pod of which so much is expected, of which time has left `decay`, of which so much is shown, and of which this share
    /// falls on the boards.
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
        // Until time has left no more than that.
        self.ends_in(whole((by_time - not_shown) / mean * window.0 as f64));
    }

    fn ends_in(&mut self, time: Millis) {
        self.until = self.until.min(self.from + time.max(Millis(1)));
    }
}

impl Circumstances {
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
