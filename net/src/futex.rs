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
    use fpga_test_kit::{patience, until};
    use rustix::thread::{Pid, gettid};
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;

    const LONG: Duration = Duration::from_secs(3600);

    /// Starts a thread that sleeps once on the word while it is 7. Returns the thread's id, and the end of its sleep.
    fn sleeper(word: &Arc<AtomicU64>) -> (Pid, Receiver<()>) {
        let (begins, begun) = channel();
        let (ends, ended) = channel();
        let word = Arc::clone(word);
        thread::spawn(move || {
            begins.send(gettid()).unwrap();
            sleep(&word, 7, LONG);
            ends.send(()).unwrap();
        });
        (begun.recv().unwrap(), ended)
    }

    /// Waits until the kernel has the thread in a system call with the word's address as its first argument.
    fn until_asleep(thread: Pid, word: &AtomicU64) {
        let call = format!(" {:p} ", lower_half(word));
        let file = format!("/proc/self/task/{}/syscall", thread.as_raw_nonzero());
        until("a thread to sleep on the word", || {
            let now = std::fs::read_to_string(&file).unwrap();
            if now.contains(&call) { Ok(()) } else { Err(now) }
        });
    }

    #[test]
    fn a_wake_ends_the_sleep_of_all_threads() {
        let word = Arc::new(AtomicU64::new(7));
        let sleepers = [sleeper(&word), sleeper(&word)];
        for (thread, _) in &sleepers {
            until_asleep(*thread, &word);
        }
        wake_all(&word);
        for (_, ended) in sleepers {
            ended.recv_timeout(patience()).unwrap();
        }
    }

    #[test]
    fn a_thread_does_not_sleep_on_a_word_that_has_changed() {
        let word = Arc::new(AtomicU64::new(7 << 32));
        let (_, ended) = sleeper(&word);
        ended.recv_timeout(patience()).unwrap();
        // Only the lower half counts.
        word.store(1 << 32 | 7, Ordering::SeqCst);
        let (thread, _) = sleeper(&word);
        until_asleep(thread, &word);
    }
}
