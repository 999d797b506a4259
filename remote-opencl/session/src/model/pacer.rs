//! A thread that calls functions at given moments, with the precision of the kernel's timers.

use crate::clock;
use parking_lot::{Condvar, Mutex};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io, thread};

/// The thread. It ends when this value is dropped; what is due later is not called then.
#[derive(Debug)]
pub(super) struct Pacer(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    due: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    calls: BinaryHeap<Reverse<Call>>,
    /// Number of calls so far: calls for the same moment are made in their order.
    calls_ever: u64,
    ended: bool,
}

struct Call {
    at: u64,
    number: u64,
    call: Box<dyn FnOnce(u64) + Send>,
}

impl Pacer {
    /// Starts the thread.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let of_thread = Arc::clone(&shared);
        thread::Builder::new().name("model".to_owned()).spawn(move || of_thread.run())?;
        Ok(Self(shared))
    }

    /// Calls `call` with the time at `at`, both in ns of the manager's clock, or as soon as possible after it.
    pub(super) fn at(&self, at: u64, call: impl FnOnce(u64) + Send + 'static) {
        let mut state = self.0.due.lock();
        state.calls_ever += 1;
        let number = state.calls_ever;
        state.calls.push(Reverse(Call { at, number, call: Box::new(call) }));
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Drop for Pacer {
    fn drop(&mut self) {
        self.0.due.lock().ended = true;
        self.0.changed.notify_one();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.due.lock();
        while !state.ended {
            let now = clock::now_ns();
            match state.calls.peek().map(|Reverse(call)| call.at) {
                None => self.changed.wait(&mut state),
                Some(at) if at > now => {
                    self.changed.wait_for(&mut state, Duration::from_nanos(at - now));
                }
                Some(_) => {
                    let Some(Reverse(next)) = state.calls.pop() else { continue };
                    // The call may take locks and ask for another call.
                    parking_lot::MutexGuard::unlocked(&mut state, || (next.call)(now));
                }
            }
        }
    }
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("at", &self.at).finish_non_exhaustive()
    }
}

impl PartialEq for Call {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Call {}

impl PartialOrd for Call {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Call {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn calls_are_made_in_the_order_of_their_moments_and_never_early() {
        let pacer = Pacer::start().unwrap();
        let (sender, calls) = channel();
        // The first call keeps the thread until the others are there: else one could be made before an earlier one is there.
        let (all_there, waits) = channel::<()>();
        pacer.at(0, move |_| waits.recv().unwrap());
        let begin = clock::now_ns();
        for (name, after_ms) in [("c", 30), ("a", 10), ("b", 20), ("b2", 20), ("past", 0)] {
            let (sender, at) = (sender.clone(), begin + after_ms * 1_000_000);
            pacer.at(at, move |now| sender.send((name, now >= at)).unwrap());
        }
        all_there.send(()).unwrap();
        let called: Vec<_> = (0..5).map(|_| calls.recv_timeout(Duration::from_secs(30)).unwrap()).collect();
        assert_eq!(called, [("past", true), ("a", true), ("b", true), ("b2", true), ("c", true)]);
    }

    #[test]
    fn a_call_may_ask_for_another_one() {
        let pacer = Arc::new(Pacer::start().unwrap());
        let (sender, calls) = channel();
        let again = Arc::clone(&pacer);
        pacer.at(0, move |_| again.at(0, move |_| sender.send(()).unwrap()));
        calls.recv_timeout(Duration::from_secs(30)).unwrap();
    }
}
