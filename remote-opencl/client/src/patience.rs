//! How long a thread that waits for an answer looks for it before it sleeps.
//!
//! To be woken costs some 10 to 50 µs, most of it in the scheduler; looking costs a processor. So a thread looks only where
//! there are processors left for the manager and the vendor's runtime, for a few dozen µs, and lets others run between two
//! looks; and a program whose answers take longer is soon not looked for any more, but now and then.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// As long as it takes to be woken on a slow machine: whoever looks in vain loses no more than who slept at once.
const MOST: Duration = Duration::from_micros(50);

/// Environment variable with the microseconds instead; 0: sleep at once.
const VARIABLE: &str = "FPGA_SPIN_US";

/// Fewer processors are needed by those who are waited for.
const FEWEST_PROCESSORS: usize = 3;

/// Waits in vain until looking is given up.
const GIVEN_UP_AFTER: u32 = 4;

/// One in so many waits looks nevertheless.
const TRIED_AGAIN: u32 = 64;

/// What a session's waits have come to.
#[derive(Debug, Default)]
pub(crate) struct Habit {
    /// Waits without success since the last one with.
    in_vain: AtomicU32,
}

/// One wait.
#[derive(Debug)]
pub(crate) struct Patience {
    until: Instant,
    in_vain: u32,
}

impl Habit {
    /// A wait; `None`: sleep at once.
    pub(crate) fn patience(&self) -> Option<Patience> {
        let most = most();
        if most.is_zero() {
            return None;
        }
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain >= GIVEN_UP_AFTER && !in_vain.is_multiple_of(TRIED_AGAIN) {
            self.in_vain.store(in_vain.wrapping_add(1), Ordering::Relaxed);
            return None;
        }
        Some(Patience { until: Instant::now() + most, in_vain })
    }

    /// Whether that wait had success.
    pub(crate) fn learn(&self, patience: &Patience, success: bool) {
        let in_vain = if success { 0 } else { patience.in_vain.wrapping_add(1) };
        self.in_vain.store(in_vain, Ordering::Relaxed);
    }
}

impl Patience {
    /// Whether it is time to sleep; lets others run.
    pub(crate) fn is_over(&mut self) -> bool {
        thread::yield_now();
        Instant::now() >= self.until
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

    #[test]
    fn a_session_that_waits_long_is_seldom_looked_for() {
        if most().is_zero() {
            return;
        }
        let habit = Habit::default();
        let mut looked = 0;
        for _ in 0..1000 {
            if let Some(patience) = habit.patience() {
                looked += 1;
                habit.learn(&patience, false);
            }
        }
        assert!((GIVEN_UP_AFTER..30).contains(&looked), "{looked}");
        let again = loop {
            if let Some(patience) = habit.patience() {
                break patience;
            }
        };
        habit.learn(&again, true);
        assert!(habit.patience().is_some());
    }
}
