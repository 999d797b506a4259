//! Whether a thread that waits for an answer looks for it before it sleeps.
//!
//! To be woken costs some 10 to 50 µs, most of it in the scheduler, or in the hypervisor where a processor was idle; looking
//! costs a processor. Which is faster depends on the machine, on what else runs there, on the program, and on the vendor's
//! threads: those of Intel's runtimes yield again and again for want of work, 32 of them in the FPGA emulator. So a session
//! tries both now and then, and takes the faster way. It never looks for more than some 100 µs, and sleeps where looking
//! isn't faster by much: a program whose answers take longer is not looked for. Who looks holds on to its processor: who
//! yields among threads that yield comes after all of them, and Linux has it pay for that later.

use std::hint;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// About twice what it takes to be woken on a slow machine.
const MOST: Duration = Duration::from_micros(100);

/// Environment variable with the microseconds instead; 0: sleep at once.
const VARIABLE: &str = "FPGA_SPIN_US";

/// Fewer processors are needed by those who are waited for: with two, looking was no faster on a quiet machine.
const FEWEST_PROCESSORS: usize = 3;

/// So many waits are spent in one way, one after the other, to find out what it takes: threads settle on processors that
/// suit it.
const RUN: u32 = 16;

/// In one of so many runs a way is tried without regard to which is faster.
const TRIED_AGAIN: u32 = 16;

/// In the first runs each way is tried, in turn.
const TRIED_FIRST: u32 = 4;

const WAYS: [Way; 2] = [Way::Sleeping, Way::Looking];

/// So often a thread pauses between two looks: less than a µs.
const PAUSES: u32 = 16;

/// Looking must take less than so many hundredths of what sleeping takes.
const WORTH: u64 = 90;

/// What a session's waits have come to.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    waits: AtomicU32,
    /// In the order of [`WAYS`].
    typical: [Typical; WAYS.len()],
}

/// What waits of one kind typically take, in ns; 0: nobody knows.
#[derive(Debug, Default)]
struct Typical(AtomicU32);

/// How a wait is spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Sleeping at once.
    Sleeping,
    /// Looking first.
    Looking,
}

/// One wait.
#[derive(Debug)]
pub(crate) struct Wait<'a> {
    habit: &'a Habit,
    way: Way,
    since: Instant,
}

impl Habit {
    /// A wait begins; nothing where none is ever looked for.
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

    /// A step of a quarter at most: one wait in which the thread lost its processor says little.
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
    /// Whether it begins with looking.
    pub(crate) fn looks(&self) -> bool {
        self.way == Way::Looking
    }

    /// Whether it is time to sleep, between two looks.
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

/// How long a thread looks at most, on this machine.
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

    /// How many of these waits are spent in which way, where each way takes as many µs.
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
        // What looking takes is found out by the few waits that try it.
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
