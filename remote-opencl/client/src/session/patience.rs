//! Adaptive spin: whether a thread that waits for an answer polls for it before it sleeps.
//!
//! Waking a thread costs about 10 to 50 µs, mostly in the scheduler, or in the hypervisor if a processor was idle;
//! polling costs a processor. Which is faster depends on the machine and its other load, on the program, and on the
//! vendor's threads: those of Intel's runtimes yield again and again when they have no work, 32 of them in the FPGA
//! emulator. So a session tries both ways from time to time and takes the faster one. It never polls for more than
//! about 100 µs, and sleeps if polling isn't clearly faster, so it doesn't poll for answers that take longer. A
//! polling thread doesn't yield: among threads that yield it would run after all of them, and Linux would charge it
//! for that later.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest time to poll. About twice the time to wake a thread on a slow machine.
const MOST: Duration = Duration::from_micros(100);

/// Environment variable that sets the longest time to poll in µs; 0 means to sleep at once.
const VARIABLE: &str = "FPGA_SPIN_US";

/// With fewer processors than this no thread polls, since the threads that produce the answer need them. With two
/// processors polling was no faster on a quiet machine.
const FEWEST_PROCESSORS: usize = 3;

/// Number of consecutive waits in one way, called a run. One wait is not enough, since threads settle on processors
/// that suit the way.
const RUN: u32 = 16;

/// One in this many runs ignores which way is faster.
const TRIED_AGAIN: u32 = 16;

/// Number of first runs in which the ways take turns.
const TRIED_FIRST: u32 = 4;

const WAYS: [Way; 2] = [Way::Sleeping, Way::Looking];

/// Number of pauses of the processor between two polls; together less than 1 µs.
const PAUSES: u32 = 16;

/// Polling is chosen if it takes less than this percentage of the time of sleeping.
const WORTH: u64 = 90;

/// The statistics of a session's waits.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    waits: AtomicU32,
    /// Typical duration for each of [`WAYS`].
    typical: [Typical; WAYS.len()],
}

/// Typical duration of a wait in ns; 0 if unknown.
#[derive(Debug, Default)]
struct Typical(AtomicU32);

/// The way in which a wait is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Sleeping at once.
    Sleeping,
    /// Polling before sleeping.
    Looking,
}

/// A wait in progress.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    habit: &'a Habit,
    way: Way,
    since: Instant,
}

impl Habit {
    /// Begins a wait; `None` if polling is disabled.
    pub(crate) fn wait(&self) -> Option<Wait<'_>> {
        if most().is_zero() {
            return None;
        }
        let way = self.way(self.waits.fetch_add(1, Ordering::Relaxed));
        Some(Wait { habit: self, way, since: Instant::now() })
    }

    fn way(&self, wait: u32) -> Way {
        let run = wait / RUN;
        let in_turn = |count: u32| WAYS[count as usize % WAYS.len()];
        if run < TRIED_FIRST {
            return in_turn(run);
        }
        if run.is_multiple_of(TRIED_AGAIN) {
            return in_turn(run / TRIED_AGAIN);
        }
        let [sleeping, looking] = self.typical.each_ref().map(|typical| u64::from(typical.get()));
        if looking * 100 < sleeping * WORTH { Way::Looking } else { Way::Sleeping }
    }

    fn learn(&self, way: Way, took: Duration) {
        self.typical[way as usize].learn(u32::try_from(took.as_nanos()).unwrap_or(u32::MAX));
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
    pub(crate) fn looks(&self) -> bool {
        self.way == Way::Looking
    }

    /// Pauses; then whether it is time to sleep.
    pub(crate) fn is_over(&self) -> bool {
        for _ in 0..PAUSES {
            hint::spin_loop();
        }
        self.since.elapsed() >= most()
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.habit.learn(self.way, self.since.elapsed());
    }
}

/// Longest time to poll on this machine.
fn most() -> Duration {
    static MOST_HERE: OnceLock<Duration> = OnceLock::new();
    *MOST_HERE.get_or_init(|| {
        let said = std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok());
        match said {
            Some(micros) => Duration::from_micros(micros),
            None if thread::available_parallelism().is_ok_and(|count| count.get() >= FEWEST_PROCESSORS) => {
                MOST
            }
            None => Duration::ZERO,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates waits where each way takes `took` µs. Returns how many waits were spent in each way.
    fn spend(habit: &Habit, waits: std::ops::Range<u32>, took: [u64; WAYS.len()]) -> [u32; WAYS.len()] {
        let mut spent = [0; WAYS.len()];
        for wait in waits {
            let way = habit.way(wait);
            spent[way as usize] += 1;
            habit.learn(way, Duration::from_micros(took[way as usize]));
        }
        spent
    }

    #[test]
    fn the_fastest_way_is_taken_and_the_other_tried_now_and_then() {
        for (fastest, took) in [[30, 50], [50, 30]].into_iter().enumerate() {
            let spent = spend(&Habit::default(), 0..1000, took);
            assert!(spent[fastest] > 900 && spent.iter().all(|count| *count >= 32), "{spent:?}");
        }
    }

    #[test]
    fn what_takes_long_is_not_looked_for() {
        for took in [5_000, 10_000_000] {
            let spent = spend(&Habit::default(), 0..1000, [took; WAYS.len()]);
            assert!(spent[0] > 900, "{spent:?}");
        }
    }

    #[test]
    fn a_program_that_changes_is_noticed() {
        let habit = Habit::default();
        spend(&habit, 0..1000, [5_000, 5_000]);
        // Only the few waits that try polling reveal its duration.
        spend(&habit, 1000..5000, [50, 25]);
        let spent = spend(&habit, 5000..6000, [50, 25]);
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
