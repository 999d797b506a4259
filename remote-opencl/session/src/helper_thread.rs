//! A helper thread that waits inside the vendor's runtime, as a native program does in `clFinish`.
//!
//! A CPU runtime may count on such a thread: Intel's starts one thread fewer than there are processors and uses the
//! program's own thread as the last. Sessions never wait in the runtime, so the manager has one helper thread that
//! does, for all sessions.
//!
//! The thread waits for long tasks only, judged by how long their kernels ran before. Waking the thread costs as
//! much as a short task takes. And where the runtime's own threads never sleep, one more thread takes the processor
//! from the thread that handles the task's end.

use crate::queue::Queue;
use crate::quiesce::InUse;
use fpga_board::dispatch::Kind;
use fpga_vendor::Event;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Shortest task that the thread waits for at once. Waking a thread takes 10 to 25 µs, and its help at best halves
/// the remaining time of the task.
const LONG: Duration = Duration::from_micros(200);

/// Time after which a task counts as long if it still runs and some of its kernels never ran before.
const TRIAL: Duration = Duration::from_millis(1);

/// Maximum number of tasks that wait for the thread. Further tasks run without its help.
const MAX_WAITING: usize = 64;

/// Maximum number of kinds of kernels whose durations are remembered.
const MAX_KINDS: usize = 4096;

/// Stack of the thread in bytes. Kernels may use the stack of the thread that they run in; the main thread of a
/// program has 8 MiB by default.
const STACK_BYTES: usize = 16 << 20;

/// The helper thread. It starts with the first long task and ends with the last user of this value, or at
/// [`HelperThread::end`].
#[derive(Debug, Default)]
pub struct HelperThread {
    ran: Mutex<HashMap<Kind, Ran>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    NotYet,
    Thread {
        waits: SyncSender<Wait>,
        thread: JoinHandle<()>,
    },
    /// The thread could not be started, or has ended.
    None,
}

/// How long a kernel ran on the device the last two times. The shorter of both counts, since one may have been
/// interrupted.
#[derive(Debug, Clone, Copy)]
struct Ran {
    last: Duration,
    before: Duration,
}

/// A command that the thread shall wait for.
#[derive(Debug)]
struct Wait {
    event: Arc<Event>,
    /// Outlives the event: PoCL reads the queue's device when it releases an event, and does not keep a sub-device
    /// alive for that. The queue's context does.
    queue: Arc<Queue>,
    /// Keeps the board from being reconfigured while the thread is in the runtime.
    used: InUse,
    /// Delay before the wait; the thread does not wait if the command has ended by then.
    after: Duration,
}

/// Expected duration of the kernels of a task; zero without kernels.
#[derive(Debug, Default)]
pub struct Expected {
    /// Sum over the kernels that ran before.
    known: Duration,
    /// Whether the task has kernels that never ran before.
    unknown: bool,
}

impl Expected {
    /// The delay after which the task is worth waiting for; `None` if it never is.
    fn worth_waiting(&self) -> Option<Duration> {
        match self {
            Self { known, .. } if *known >= LONG => Some(Duration::ZERO),
            Self { unknown: true, .. } => Some(TRIAL),
            Self { unknown: false, .. } => None,
        }
    }
}

impl HelperThread {
    /// Adds a kernel to the expected duration of its task.
    pub fn expect(&self, kind: Kind, expected: &mut Expected) {
        match self.ran.lock().get(&kind) {
            Some(ran) => expected.known = expected.known.saturating_add(ran.last.min(ran.before)),
            None => expected.unknown = true,
        }
    }

    /// Records that a kernel of this kind ran for `last`.
    pub fn measured(&self, kind: Kind, last: Duration) {
        let mut ran = self.ran.lock();
        let before = ran.get(&kind).map_or(last, |ran| ran.last);
        if ran.len() >= MAX_KINDS {
            // Kinds in use are measured again soon.
            ran.clear();
        }
        ran.insert(kind, Ran { last, before });
    }

    /// Lets the helper thread wait for `event`, a command of the task, if the task is expected to be long.
    pub fn wait_for(&self, expected: &Expected, (queue, event): (Arc<Queue>, Arc<Event>), used: &InUse) {
        let Some(after) = expected.worth_waiting() else { return };
        let mut state = self.state.lock();
        if let State::NotYet = *state {
            *state = State::start();
        }
        if let State::Thread { waits, .. } = &*state {
            // If the queue is full the thread is busy, and the task runs without it.
            let _ = waits.try_send(Wait { event, queue, used: used.another(), after });
        }
    }

    /// Ends the thread. All tasks must have ended before. The vendor's library frees its memory when the process
    /// exits, and no thread may be in the library then.
    pub fn end(&self) {
        let state = mem::replace(&mut *self.state.lock(), State::None);
        if let State::Thread { waits, thread } = state {
            drop(waits);
            if thread.join().is_err() {
                tracing::error!("The helper thread panicked");
            }
        }
    }
}

impl State {
    fn start() -> Self {
        let (waits, receiver) = sync_channel(MAX_WAITING);
        let thread = std::thread::Builder::new().name("helper".to_owned()).stack_size(STACK_BYTES);
        match thread.spawn(move || wait(&receiver)) {
            Ok(thread) => Self::Thread { waits, thread },
            Err(error) => {
                tracing::warn!(%error, "The helper thread cannot be started: kernels may run slower");
                Self::None
            }
        }
    }
}

fn wait(waits: &Receiver<Wait>) {
    while let Ok(Wait { event, queue, used, after }) = waits.recv() {
        if !after.is_zero() {
            std::thread::sleep(after);
        }
        if !event.has_ended() {
            // The session handles the command's failure.
            let _ = event.wait();
        }
        // The vendor's event is released before the board may be reconfigured.
        drop(event);
        drop(queue);
        drop(used);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_worth_waiting_for_by_what_its_kernels_took_twice_or_if_an_unknown_one_still_runs() {
        let helper = HelperThread::default();
        let worth = |kinds: &[u64]| {
            let mut expected = Expected::default();
            kinds.iter().for_each(|kind| helper.expect(Kind(*kind), &mut expected));
            expected.worth_waiting()
        };
        assert_eq!((worth(&[]), worth(&[1])), (None, Some(TRIAL)));
        helper.measured(Kind(1), LONG / 2);
        assert_eq!((worth(&[1]), worth(&[1, 1]), worth(&[1, 2])), (None, Some(Duration::ZERO), Some(TRIAL)));
        helper.measured(Kind(1), LONG * 10);
        assert_eq!(worth(&[1]), None, "that may have been an interruption");
        helper.measured(Kind(1), LONG * 10);
        assert_eq!(worth(&[1]), Some(Duration::ZERO));
    }

    #[test]
    fn no_more_kinds_are_remembered_than_there_is_room_for() {
        let helper = HelperThread::default();
        for kind in 0..=MAX_KINDS as u64 {
            helper.measured(Kind(kind), LONG);
        }
        assert_eq!(helper.ran.lock().len(), 1);
    }
}
