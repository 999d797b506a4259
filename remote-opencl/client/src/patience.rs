//! How long a thread that waits for an answer looks for it before it sleeps.
//!
//! To be woken costs some 10 to 50 µs, most of it in the scheduler; looking costs a processor. So a thread looks only on a
//! machine with more than one, for a few dozen µs, and lets others run between two looks; and a program whose answers
//! take longer is soon not looked for any more, but now and then.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// As long as it takes to be woken on a slow machine: whoever looks in vain loses no more than who slept at once.
const MOST: Duration = Duration::from_micros(50);

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
        if !is_of_use() {
            return None;
        }
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain >= GIVEN_UP_AFTER && !in_vain.is_multiple_of(TRIED_AGAIN) {
            self.in_vain.store(in_vain.wrapping_add(1), Ordering::Relaxed);
            return None;
        }
        Some(Patience { until: Instant::now() + most(), in_vain })
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

/// Whether another thread can run while this one looks.
fn is_of_use() -> bool {
    static SEVERAL: OnceLock<bool> = OnceLock::new();
    *SEVERAL.get_or_init(|| thread::available_parallelism().is_ok_and(|processors| processors.get() > 1))
        && !most().is_zero()
}

fn most() -> Duration {
    static X: OnceLock<Duration> = OnceLock::new();
    *X.get_or_init(|| {
        std::env::var("FPGA_SPIN_US").ok().and_then(|v| v.parse().ok()).map_or(MOST, Duration::from_micros)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_waits_long_is_seldom_looked_for() {
        if !is_of_use() {
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
