//! The arrivals of one function's requests: by a timer, in bursts, or at random. Bursts and random arrivals follow
//! the rhythm of days and weeks. The number of requests is exact.

use super::DAYS;
use crate::random::Random;
use crate::time::SimTime;

const HOURS: usize = 336;
const HOUR: f64 = 3600.0;
/// Mean number of requests in a burst, and mean time between them in seconds.
const BURST: f64 = 12.0;
const GAP: f64 = 2.0;

/// The remaining arrivals of one function.
#[derive(Debug, Clone)]
pub(super) struct Arrivals {
    left: u64,
    pattern: Pattern,
    last: f64,
}

#[derive(Debug, Clone)]
enum Pattern {
    Timer { period: f64, phase: f64, tick: u64 },
    Random(Spread),
    Bursts { starts: Spread, in_burst: u64 },
}

/// The remaining instants of a fixed number that are spread over the trace by rhythm. The next instant is the minimum
/// of as many uniform draws as instants are left.
#[derive(Debug, Clone)]
struct Spread {
    left: u64,
    /// Share of the requests up to the last instant, 0 to 1.
    passed: f64,
    rhythm: Rhythm,
}

/// Cumulative share of requests at the end of each hour.
#[derive(Debug, Clone)]
struct Rhythm {
    hours: Vec<f64>,
    hour: usize,
}

impl Arrivals {
    /// The arrivals of a function with `count` requests. Functions of the same application share their rhythm.
    pub(super) fn new(random: &mut Random, count: u64, app: u32) -> Self {
        let kind = random.unit();
        let pattern = if kind < 0.3 {
            let period = DAYS * 24.0 * HOUR / count as f64;
            Pattern::Timer { period, phase: period * random.unit(), tick: 0 }
        } else {
            let rhythm = Rhythm::new(app);
            if kind < 0.7 {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "smaller than count"
                )]
                let bursts = (count as f64 / BURST) as u64;
                Pattern::Bursts { starts: Spread::new(bursts.max(1), rhythm), in_burst: 0 }
            } else {
                Pattern::Random(Spread::new(count, rhythm))
            }
        };
        Self { left: count, pattern, last: 0.0 }
    }

    /// The time of the next request; `None` after the last one.
    pub(super) fn next(&mut self, random: &mut Random) -> Option<SimTime> {
        self.left = self.left.checked_sub(1)?;
        let at = match &mut self.pattern {
            Pattern::Timer { period, phase, tick } => {
                let at = *phase + *period * *tick as f64;
                *tick += 1;
                at
            }
            Pattern::Random(spread) => spread.next(random).unwrap_or(self.last),
            Pattern::Bursts { starts, in_burst } => {
                if *in_burst == 0 {
                    // Divide the remaining requests evenly among the remaining bursts; the last burst takes the rest.
                    let mean = (self.left + 1) as f64 / starts.left.max(1) as f64;
                    #[expect(
                        clippy::cast_possible_truncation,
                        clippy::cast_sign_loss,
                        reason = "a cast saturates"
                    )]
                    let size = random.exponential(mean) as u64;
                    *in_burst = if starts.left <= 1 { u64::MAX } else { size };
                    // A burst may last longer than the time to the next one.
                    starts.next(random).map_or(self.last, |start| start.max(self.last))
                } else {
                    *in_burst -= 1;
                    self.last + random.exponential(GAP)
                }
            }
        };
        self.last = at;
        Some(SimTime::from_secs(at))
    }
}

impl Spread {
    fn new(count: u64, rhythm: Rhythm) -> Self {
        Self { left: count, passed: 0.0, rhythm }
    }

    fn next(&mut self, random: &mut Random) -> Option<f64> {
        if self.left == 0 {
            return None;
        }
        // The minimum of n uniform draws from the remaining share: 1 − (1 − U)^(1/n).
        let least = -libm::expm1(-random.exponential(1.0) / self.left as f64);
        self.passed += (1.0 - self.passed) * least;
        self.left -= 1;
        Some(self.rhythm.moment(self.passed))
    }
}

impl Rhythm {
    fn new(app: u32) -> Self {
        // At the busiest hour an application has 25 to 50 % more requests than on average. The hour and the weekend's
        // share differ between applications.
        let peak = f64::from(app % 24);
        let swing = 0.25 + 0.25 * f64::from(app % 3) / 2.0;
        let weekend = if app.is_multiple_of(4) { 1.0 } else { 0.6 };
        let mut sum = 0.0;
        let mut hours: Vec<f64> = (0..HOURS)
            .map(|hour| {
                let (day, of_day) = (hour / 24, (hour % 24) as f64);
                let by_day = 1.0 + swing * libm::cos(2.0 * std::f64::consts::PI * (of_day - peak) / 24.0);
                // The trace begins on a Sunday.
                sum += by_day * if matches!(day % 7, 0 | 6) { weekend } else { 1.0 };
                sum
            })
            .collect();
        hours.iter_mut().for_each(|cumulated| *cumulated /= sum);
        Self { hours, hour: 0 }
    }

    /// The time at which `share` of the requests has arrived; `share` must not decrease between calls.
    fn moment(&mut self, share: f64) -> f64 {
        while self.hour + 1 < HOURS && self.hours[self.hour] < share {
            self.hour += 1;
        }
        let before = if self.hour == 0 { 0.0 } else { self.hours[self.hour - 1] };
        let within = (share - before) / (self.hours[self.hour] - before);
        (self.hour as f64 + within.clamp(0.0, 1.0)) * HOUR
    }
}
