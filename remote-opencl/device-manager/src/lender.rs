//! A thread for the vendor's runtime to work in, as that of a native program which waits in `clFinish`.
//!
//! A CPU runtime may count on it: of as many threads as there are processors Intel's makes one less, and the program's
//! own is the last. Sessions never wait in the runtime, so the manager has one thread that does, for all sessions.
//!
//! Only for long tasks, by how long such kernels ran before: to wake it costs as much as a short one takes, and where the
//! runtime's own threads never sleep, one more takes the processor from who is to hear of the end.

use crate::board::Use;
use crate::dispatcher::Kind;
use crate::objects::lock;
use crate::vendor::Event;
use std::collections::HashMap;
use std::mem;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

/// To wake a thread takes 10 to 25 µs, and it halves, at best, what is left of the task.
const LONG: Duration = Duration::from_micros(200);

/// A task with kernels that never ran before is long if it still runs then.
const TRIAL: Duration = Duration::from_millis(1);

/// Most tasks that wait for the thread: while it is in one of them, the others do without.
const MAX_WAITING: usize = 64;

/// Most kinds of kernels that are remembered.
const MAX_KINDS: usize = 4096;

/// Kernels use the stack of the thread they run in, which for programs is the system's 8 MiB.
const STACK_BYTES: usize = 16 << 20;

/// The thread, from the first long task on. Ends with its last user, or before that by [`Lender::end`].
#[derive(Debug, Default)]
pub struct Lender {
    ran: Mutex<HashMap<Kind, Ran>>,
    lent: Mutex<Lent>,
}

#[derive(Debug, Default)]
enum Lent {
    #[default]
    NotYet,
    Thread {
        waits: SyncSender<Wait>,
        thread: JoinHandle<()>,
    },
    /// There can be none, or no more.
    None,
}

/// How long a kernel ran on the device the last two times: one may have been interrupted.
#[derive(Debug, Clone, Copy)]
struct Ran {
    last: Duration,
    before: Duration,
}

/// A command that is waited for.
#[derive(Debug)]
struct Wait {
    event: Arc<Event>,
    /// The task's place at the board.
    used: Use,
    /// If it has not ended by then.
    after: Duration,
}

/// How long the kernels of a task should take; without kernels no time at all.
#[derive(Debug, Default)]
pub struct Expected {
    /// Those that ran before.
    known: Duration,
    /// Whether there are others.
    unknown: bool,
}

impl Expected {
    /// When the task is worth waiting for, if ever.
    fn worth_waiting(&self) -> Option<Duration> {
        match self {
            Self { known, .. } if *known >= LONG => Some(Duration::ZERO),
            Self { unknown: true, .. } => Some(TRIAL),
            Self { unknown: false, .. } => None,
        }
    }
}

impl Lender {
    /// One more kernel in a task.
    pub fn expect(&self, kind: Kind, expected: &mut Expected) {
        match lock(&self.ran).get(&kind) {
            Some(ran) => expected.known = expected.known.saturating_add(ran.last.min(ran.before)),
            None => expected.unknown = true,
        }
    }

    /// A kernel of this kind has run for so long.
    pub fn measured(&self, kind: Kind, last: Duration) {
        let mut ran = lock(&self.ran);
        let before = ran.get(&kind).map_or(last, |ran| ran.last);
        if ran.len() >= MAX_KINDS {
            // Those in use come again.
            ran.clear();
        }
        ran.insert(kind, Ran { last, before });
    }

    /// Waits for a command of a task in the vendor's runtime, if that is worth it and the thread is not busy.
    pub fn lend(&self, expected: &Expected, event: &Arc<Event>, used: &Use) {
        let Some(after) = expected.worth_waiting() else { return };
        let mut lent = lock(&self.lent);
        if let Lent::NotYet = *lent {
            *lent = Lent::start();
        }
        if let Lent::Thread { waits, .. } = &*lent {
            // Full: the runtime has a thread of ours.
            let _ = waits.try_send(Wait { event: event.clone(), used: used.another(), after });
        }
    }

    /// Ends the thread, for which all tasks must have ended: when the process does, the runtime's memory goes, and nobody
    /// may be in it any more.
    pub fn end(&self) {
        let lent = mem::replace(&mut *lock(&self.lent), Lent::None);
        if let Lent::Thread { waits, thread } = lent {
            drop(waits);
            if thread.join().is_err() {
                tracing::error!("The thread that was lent to the OpenCL runtime panicked");
            }
        }
    }
}

impl Lent {
    fn start() -> Self {
        let (waits, receiver) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new().name("lent".to_owned()).stack_size(STACK_BYTES);
        match thread.spawn(move || wait(&receiver)) {
            Ok(thread) => Self::Thread { waits, thread },
            Err(error) => {
                tracing::warn!(%error, "No thread to lend to the OpenCL runtime: kernels may run slower");
                Self::None
            }
        }
    }
}

fn wait(waits: &Receiver<Wait>) {
    while let Ok(Wait { event, used, after }) = waits.recv() {
        if !after.is_zero() {
            std::thread::sleep(after);
        }
        if !event.has_ended() {
            // Whether it failed is its session's business.
            let _ = event.wait();
        }
        // The vendor's event goes before the board may.
        drop(event);
        drop(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_worth_waiting_for_by_what_its_kernels_took_twice_or_if_an_unknown_one_still_runs() {
        let lender = Lender::default();
        let worth = |kinds: &[u64]| {
            let mut expected = Expected::default();
            kinds.iter().for_each(|kind| lender.expect(Kind(*kind), &mut expected));
            expected.worth_waiting()
        };
        assert_eq!((worth(&[]), worth(&[1])), (None, Some(TRIAL)));
        lender.measured(Kind(1), LONG / 2);
        assert_eq!((worth(&[1]), worth(&[1, 1]), worth(&[1, 2])), (None, Some(Duration::ZERO), Some(TRIAL)));
        lender.measured(Kind(1), LONG * 10);
        assert_eq!(worth(&[1]), None, "that may have been an interruption");
        lender.measured(Kind(1), LONG * 10);
        assert_eq!(worth(&[1]), Some(Duration::ZERO));
    }

    #[test]
    fn no_more_kinds_are_remembered_than_there_is_room_for() {
        let lender = Lender::default();
        for kind in 0..=MAX_KINDS as u64 {
            lender.measured(Kind(kind), LONG);
        }
        assert_eq!(lock(&lender.ran).len(), 1);
    }
}
