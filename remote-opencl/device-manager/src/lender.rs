//! A thread for the vendor's runtime to work in, as that of a native program which waits in `clFinish`.
//!
//! A CPU runtime may count on it: of as many threads as there are processors Intel's makes one less, and the program's
//! own is the last. Sessions never wait in the runtime, so the manager has one thread that does, for all sessions. It is
//! woken only for tasks that should take longer than that costs, by how long such kernels took before.

use crate::board::Use;
use crate::dispatcher::{Kind, Profile};
use crate::objects::lock;
use crate::vendor::Event;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// To wake a thread takes 10 to 25 µs, and it halves, at best, what is left of the task.
const LONG: Duration = Duration::from_micros(100);

/// Most tasks that wait for the thread: while it is in one of them, the others do without.
const MAX_WAITING: usize = 64;

/// Kernels use the stack of the thread they run in, which for programs is the system's 8 MiB.
const STACK_BYTES: usize = 16 << 20;

/// The thread, from the first long task on. Ends with its last user.
#[derive(Debug, Default)]
pub struct Lender {
    /// How long kernels ran on the device.
    profile: Mutex<Profile>,
    waits: OnceLock<Option<SyncSender<Wait>>>,
}

/// A command that is waited for, and the task's place at the board.
type Wait = (Arc<Event>, Use);

/// How long the kernels of a task should take; without kernels no time at all.
#[derive(Debug, Default)]
pub struct Expected(Duration);

impl Lender {
    /// One more kernel in a task.
    pub fn expect(&self, kind: Kind, expected: &mut Expected) {
        // What is not known yet may be long.
        let one = lock(&self.profile).expected(Some(kind)).unwrap_or(LONG);
        expected.0 = expected.0.saturating_add(one);
    }

    /// A kernel of this kind has run for so long.
    pub fn measured(&self, kind: Kind, ran: Duration) {
        lock(&self.profile).measured(Some(kind), ran);
    }

    /// Waits for a command of a task in the vendor's runtime, if that is worth it and the thread is not busy.
    pub fn lend(&self, expected: &Expected, event: &Arc<Event>, used: &Use) {
        if expected.0 < LONG {
            return;
        }
        if let Some(waits) = self.waits.get_or_init(start) {
            // Full: the runtime has a thread of ours.
            let _ = waits.try_send((event.clone(), used.another()));
        }
    }
}

fn start() -> Option<SyncSender<Wait>> {
    let (sender, waits) = sync_channel(MAX_WAITING);
    let thread = std::thread::Builder::new().name("lent".to_owned()).stack_size(STACK_BYTES);
    match thread.spawn(move || wait(&waits)) {
        Ok(_) => Some(sender),
        Err(error) => {
            tracing::warn!(%error, "No thread to lend to the OpenCL runtime: kernels may run slower");
            None
        }
    }
}

fn wait(waits: &Receiver<Wait>) {
    while let Ok((event, used)) = waits.recv() {
        // Whether it failed is its session's business.
        let _ = event.wait();
        // The vendor's event goes before the board may.
        drop(event);
        drop(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_worth_waiting_for_by_the_sum_of_its_kernels_and_an_unknown_one_always_is() {
        let lender = Lender::default();
        let expected = |kinds: &[u64]| {
            let mut expected = Expected::default();
            kinds.iter().for_each(|kind| lender.expect(Kind(*kind), &mut expected));
            expected.0
        };
        assert_eq!(expected(&[1]), LONG);
        lender.measured(Kind(1), LONG / 2);
        assert!(expected(&[]) < LONG && expected(&[1]) < LONG);
        assert_eq!(expected(&[1, 1]), LONG);
        assert_eq!(expected(&[1, 2]), LONG / 2 * 3);
    }
}
