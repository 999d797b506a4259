//! Adaptive spin: whether a thread that waits for an answer polls for it before it sleeps.
//!
//! Waking a thread costs about 10 to 50 µs, mostly in the scheduler, or in the hypervisor if a processor was idle;
//! polling costs a processor. Which is faster depends on the machine and its other load, on the program, and on the
//! vendor's threads: those of Intel's runtimes yield again and again when they have no work, 32 of them in the FPGA
//! emulator. So a session tries both strategies from time to time and takes the faster one. It never polls for more
//! than about 100 µs, and sleeps if polling isn't clearly faster, so it doesn't poll for answers that take longer. A
//! polling thread doesn't yield: among threads that yield it would run after all of them, and Linux would charge it
//! for that later.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time to poll. About twice the time to wake a thread on a slow machine.
const LONGEST_SPIN: Duration = Duration::from_micros(100);

/// Environment variable that sets the longest time to poll in µs; 0 means to sleep at once.
const VARIABLE: &str = "FPGA_SPIN_US";

/// With fewer processors than this no thread polls, since the threads that produce the answer need them. With two
/// processors polling was no faster on a quiet machine.
const FEWEST_PROCESSORS: usize = 3;

/// Number of consecutive waits with one strategy, called a run. One wait is not enough, since threads settle on
/// processors that suit the strategy.
const RUN: u32 = 16;

/// One in this many runs ignores which strategy is faster.
const TRIED_AGAIN: u32 = 16;

/// Number of first runs in which the strategies take turns.
const TRIED_FIRST: u32 = 4;

const STRATEGIES: [Strategy; 2] = [Strategy::Sleep, Strategy::Spin];

/// Number of pauses of the processor between two polls; together less than 1 µs.
const PAUSES: u32 = 16;

/// Polling is chosen if it takes less than this percentage of the time of sleeping.
const WORTH: u64 = 90;

/// The statistics of a session's waits.
#[derive(Debug, Default)]
pub(crate) struct AdaptiveSpin {
    waits: AtomicU32,
    /// Typical duration for each of [`STRATEGIES`].
    typical: [Typical; STRATEGIES.len()],
}

/// Typical duration of a wait in ns; 0 if unknown.
#[derive(Debug, Default)]
struct Typical(AtomicU32);

/// How a wait is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Strategy {
    /// Sleeping at once.
    Sleep,
    /// Polling before sleeping.
    Spin,
}

/// A wait in progress.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    spin: &'a AdaptiveSpin,
    strategy: Strategy,
    since: Instant,
}

impl AdaptiveSpin {
    /// Begins a wait; `None` if polling is disabled.
    pub(crate) fn wait(&self) -> Option<Wait<'_>> {
        if longest_spin().is_zero() {
            return None;
        }
        let strategy = self.strategy(self.waits.fetch_add(1, Ordering::Relaxed));
        Some(Wait { spin: self, strategy, since: Instant::now() })
    }

    fn strategy(&self, wait: u32) -> Strategy {
        let run = wait / RUN;
        let in_turn = |count: u32| STRATEGIES[count as usize % STRATEGIES.len()];
        if run < TRIED_FIRST {
            return in_turn(run);
        }
        if run.is_multiple_of(TRIED_AGAIN) {
            return in_turn(run / TRIED_AGAIN);
        }
        let [sleeping, spinning] = self.typical.each_ref().map(|typical| u64::from(typical.get()));
        if spinning * 100 < sleeping * WORTH { Strategy::Spin } else { Strategy::Sleep }
    }

    fn learn(&self, strategy: Strategy, took: Duration) {
        self.typical[strategy as usize].learn(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
    }
}

impl Typical {
    fn get(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    /// Moves by at most a quarter: one wait in which the thread lost its processor is no evidence.
    fn learn(&self, took: u32) {
        let known = self.get();
        let next = match known {
            0 => took,
            _ => took.clamp(known - known / 4, known.saturating_add(known / 4).saturating_add(1)),
        };
        self.0.store(next.max(1), Ordering::Relaxed);
    }
}

impl Wait<'_> {
    /// Whether the wait begins with polling.
    pub(crate) fn spins(&self) -> bool {
        self.strategy == Strategy::Spin
    }

    /// Pauses; then whether it is time to sleep.
    pub(crate) fn is_over(&self) -> bool {
        for _ in 0..PAUSES {
            hint::spin_loop();
        }
        self.since.elapsed() >= longest_spin()
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.spin.learn(self.strategy, self.since.elapsed());
    }
}

/// Longest time to poll on this machine.
fn longest_spin() -> Duration {
    static LONGEST_HERE: OnceLock<Duration> = OnceLock::new();
    *LONGEST_HERE.get_or_init(|| {
        let configured = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        match configured {
            Some(micros) => Duration::from_micros(micros),
            None if thread::available_parallelism().is_ok_and(|count| count.get() >= FEWEST_PROCESSORS) => {
                LONGEST_SPIN
            }
            None => Duration::ZERO,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates waits where each strategy takes `took` µs. Returns how many waits used each strategy.
    fn spend(
        spin: &AdaptiveSpin,
        waits: std::ops::Range<u32>,
        took: [u64; STRATEGIES.len()],
    ) -> [u32; STRATEGIES.len()] {
        let mut spent = [0; STRATEGIES.len()];
        for wait in waits {
            let strategy = spin.strategy(wait);
            spent[strategy as usize] += 1;
            spin.learn(strategy, Duration::from_micros(took[strategy as usize]));
        }
        spent
    }

    #[test]
    fn the_fastest_strategy_is_taken_and_the_other_tried_now_and_then() {
        for (fastest, took) in [[30, 50], [50, 30]].into_iter().enumerate() {
            let spent = spend(&AdaptiveSpin::default(), 0..1000, took);
            assert!(spent[fastest] > 900 && spent.iter().all(|count| *count >= 32), "{spent:?}");
        }
    }

    #[test]
    fn what_takes_long_is_not_polled_for() {
        for took in [5_000, 10_000_000] {
            let spent = spend(&AdaptiveSpin::default(), 0..1000, [took; STRATEGIES.len()]);
            assert!(spent[0] > 900, "{spent:?}");
        }
    }

    #[test]
    fn a_program_that_changes_is_noticed() {
        let spin = AdaptiveSpin::default();
        spend(&spin, 0..1000, [5_000, 5_000]);
        // Only the few waits that try polling reveal its duration.
        spend(&spin, 1000..5000, [50, 25]);
        let spent = spend(&spin, 5000..6000, [50, 25]);
        assert!(spent[1] > 900, "{spent:?}");
    }

    #[test]
    fn one_wait_says_little() {
        let typical = Typical::default();
        typical.learn(40_000);
        typical.learn(10_000_000);
        assert_eq!(typical.get(), 50_001);
        typical.learn(40_000);
        assert_eq!(typical.get(), 40_000);
    }
}
