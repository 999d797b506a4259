//! Sleeping on a word of memory that processes share (a futex).

use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps until [`wake_all`], for at most `longest`. Returns at once if the word has another value than `expected`.
/// May return early without a reason.
pub fn sleep(word: &AtomicU32, expected: u32, longest: Duration) {
    let Ok(longest) = Timespec::try_from(longest) else { return };
    // Interrupted, over, or another value: the caller looks again in each case.
    let _ = futex::wait(word, Flags::empty(), expected, Some(&longest));
}

/// Wakes all threads, of any process, that sleep on the word.
pub fn wake_all(word: &AtomicU32) {
    // The word is mapped, so the call can't fail.
    let _ = futex::wake(word, Flags::empty(), i32::MAX.unsigned_abs());
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::thread;

    #[test]
    fn who_sleeps_is_woken_and_who_is_late_does_not_fall_asleep() {
        let word = AtomicU32::new(7);
        let long = Duration::from_secs(60);
        thread::scope(|scope| {
            let sleepers = [(); 2].map(|()| {
                scope.spawn(|| {
                    while word.load(Ordering::SeqCst) == 7 {
                        sleep(&word, 7, long);
                    }
                })
            });
            word.store(8, Ordering::SeqCst);
            wake_all(&word);
            for sleeper in sleepers {
                sleeper.join().unwrap();
            }
        });
        sleep(&word, 7, long);
    }
}
