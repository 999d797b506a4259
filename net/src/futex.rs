//! Sleeping on a word of memory that processes share (a futex). The kernel looks at the lower half of the word.
#![allow(unsafe_code)]

use rustix::thread::futex::{self, Flags, Timespec};
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::time::Duration;

/// Sleeps until [`wake_all`], for at most `longest`. Returns at once if the lower half of the word has another value
/// than `expected`. May return early without a reason.
pub fn sleep(word: &AtomicU64, expected: u32, longest: Duration) {
    let Ok(longest) = Timespec::try_from(longest) else { return };
    // Interrupted, over, or another value: the caller looks again in each case.
    let _ = futex::wait(lower_half(word), Flags::empty(), expected, Some(&longest));
}

/// Wakes all threads, of any process, that sleep on the word.
pub fn wake_all(word: &AtomicU64) {
    // The word is mapped, so the call can't fail.
    let _ = futex::wake(lower_half(word), Flags::empty(), i32::MAX.unsigned_abs());
}

fn lower_half(word: &AtomicU64) -> &AtomicU32 {
    const HALF: usize = if cfg!(target_endian = "big") { 1 } else { 0 };
    let halves = word.as_ptr().cast::<AtomicU32>();
    // SAFETY: both halves lie in the word, are aligned, and live as long as the word. This program only passes the
    // address of the half to the kernel, and never accesses it.
    unsafe { &*halves.add(HALF) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;
    use std::thread;

    #[test]
    fn who_sleeps_is_woken_and_who_is_late_does_not_fall_asleep() {
        let word = AtomicU64::new(7);
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
