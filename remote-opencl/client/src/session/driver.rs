//! The driver of a process: one current-thread runtime for all sockets, run by the threads that wait.
//!
//! An application thread that waits drives the sockets itself ([`Driver::block_on`]), so there is no thread switch
//! between it and the manager. When no application thread has driven for a while (1 ms with commands outstanding,
//! 50 ms without), a background thread drives; it blocks in `epoll` while nothing happens, and stops as soon as an
//! application thread wants to drive. While application threads drive, the background thread checks once a second.
//! A thread that can't drive sleeps until another thread has completed its future.

use crate::base::sync::lock;
use crate::error::{ClError, Result};
use fpga_foreign_process::PerProcess;
use fpga_foreign_process::spawn_with_signals_blocked;
use std::fmt::Debug;
use std::fs::File;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::Notify;

/// Time for which commands may be outstanding while no thread drives.
const GRACE: Duration = Duration::from_millis(1);

/// Time for which no thread need drive when nothing is outstanding.
const IDLE_GRACE: Duration = Duration::from_millis(50);

/// Interval of the background thread's checks while an application thread drives.
const DRIVEN_GRACE: Duration = Duration::from_secs(1);

/// What the background thread does before it drives.
pub(crate) trait BackgroundWork: Debug + Send + Sync {
    /// Sends the releases of objects for which no other message is sent.
    fn send_releases(&self);
}

/// The runtime, and the state of the threads that drive it.
#[derive(Debug)]
pub(crate) struct Driver {
    runtime: Runtime,
    turns: Arc<Turns>,
    background: OnceLock<bool>,
}

/// Which threads drive, in atomics that need no lock.
#[derive(Debug, Default)]
struct Turns {
    /// Number of application threads that drive or wait for their turn.
    waiting: AtomicUsize,
    /// Number of times that an application thread has begun to drive.
    taken: AtomicU64,
    /// Whether the background thread drives.
    in_background: AtomicBool,
    /// Number of times that the background thread has begun to drive.
    background_taken: AtomicU64,
    /// Number of commands without an answer, plus the number of sleeping threads, of all sessions.
    outstanding: AtomicUsize,
    /// Tells the background thread to stop driving.
    stop_background: Notify,
    /// Whether the background thread shall check in 1 ms.
    armed: AtomicBool,
    armed_lock: Mutex<()>,
    armed_signal: Condvar,
    background_work: Mutex<Vec<Weak<dyn BackgroundWork>>>,
}

/// Counts an application thread that drives or waits for its turn, until it is dropped, also by a panic.
#[derive(Debug)]
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The waker of a thread that sleeps while another thread drives.
#[derive(Debug, Default)]
struct Sleeper {
    woken: Mutex<bool>,
    signal: Condvar,
}

impl Sleeper {
    /// Sleeps until woken, or until it is time to check that some thread drives.
    fn sleep(&self) {
        let woken = lock(&self.woken);
        let waited = self.signal.wait_timeout_while(woken, IDLE_GRACE, |woken| !*woken);
        let (mut woken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        *woken = false;
    }
}

impl Wake for Sleeper {
    fn wake(self: Arc<Self>) {
        *lock(&self.woken) = true;
        self.signal.notify_one();
    }
}

/// Whether this thread can drive. It can't inside another tokio runtime, which it would have to leave, nor after
/// its thread-locals are destroyed, as in destructors at the exit of the program.
fn can_drive() -> bool {
    Handle::try_current().is_err_and(|error| error.is_missing_context())
}

/// Most descriptors that the runtime opens for itself.
const RUNTIME_DESCRIPTORS: usize = 8;

impl Driver {
    /// The driver of the calling process, started on first use.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` if the runtime can't be built.
    pub(crate) fn of_process() -> Result<&'static Self> {
        static DRIVER: PerProcess<Option<Driver>> = PerProcess::new(|_parents| Driver::new().ok());
        DRIVER.get().as_ref().ok_or(ClError::OUT_OF_RESOURCES)
    }

    fn new() -> io::Result<Self> {
        // Without enough descriptors tokio panics when it makes the runtime's own.
        let descriptors: io::Result<Vec<_>> =
            (0..RUNTIME_DESCRIPTORS).map(|_| File::open("/dev/null")).collect();
        drop(descriptors?);
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        Ok(Self { runtime, turns: Arc::default(), background: OnceLock::new() })
    }

    /// Drives until `future` is ready. A thread that can't drive sleeps while another one drives.
    pub(crate) fn block_on<F: Future>(&self, future: F) -> F::Output {
        if can_drive() { self.drive(future) } else { self.sleep_until(future) }
    }

    /// Drives until `future` is ready; `None` if this thread can't drive. For futures that need the runtime's
    /// context.
    pub(crate) fn try_drive<F: Future>(&self, future: F) -> Option<F::Output> {
        can_drive().then(|| self.drive(future))
    }

    fn drive<F: Future>(&self, future: F) -> F::Output {
        let turns = &self.turns;
        let waiting = Waiting::begin(&turns.waiting);
        turns.taken.fetch_add(1, Ordering::Relaxed);
        // The background thread sets its flag before it reads `waiting`, so at least one of the two sees the other.
        if turns.in_background.load(Ordering::SeqCst) {
            turns.stop_background.notify_one();
        }
        let output = self.runtime.block_on(future);
        drop(waiting);
        if turns.outstanding.load(Ordering::Relaxed) > 0 {
            self.arm();
        }
        output
    }

    fn sleep_until<F: Future>(&self, future: F) -> F::Output {
        let sleeper = Arc::new(Sleeper::default());
        let waker = Waker::from(Arc::clone(&sleeper));
        let mut context = Context::from_waker(&waker);
        let mut future = pin!(future);
        // A thread that stops driving while commands are outstanding arms the background thread.
        self.add_outstanding(1);
        let output = loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                break output;
            }
            self.arm();
            sleeper.sleep();
        };
        self.remove_outstanding(1);
        output
    }

    /// Lets everything happen that can happen without waiting: bytes out, completions in. Does nothing if a thread
    /// drives already.
    pub(crate) fn turn(&self) {
        if self.is_driven() {
            return;
        }
        if can_drive() {
            // All tasks that are ready run before a task that yields runs again.
            self.drive(tokio::task::yield_now());
        } else {
            self.arm();
        }
    }

    /// Whether some thread drives, or is about to.
    pub(crate) fn is_driven(&self) -> bool {
        self.turns.in_background.load(Ordering::SeqCst) || self.turns.waiting.load(Ordering::SeqCst) > 0
    }

    /// Makes the background thread, if it drives, start again, and so do all background work.
    pub(crate) fn restart_background(&self) {
        if self.turns.in_background.load(Ordering::SeqCst) {
            self.turns.stop_background.notify_one();
        }
    }

    /// Makes the background thread check within 1 ms whether it must drive.
    pub(crate) fn arm(&self) {
        if self.turns.armed.swap(true, Ordering::SeqCst) {
            return;
        }
        drop(lock(&self.turns.armed_lock));
        self.turns.armed_signal.notify_one();
    }

    /// Calls [`Self::arm`] if commands are outstanding.
    pub(crate) fn arm_if_outstanding(&self) {
        if self.turns.outstanding.load(Ordering::Relaxed) > 0 {
            self.arm();
        }
    }

    /// Counts `count` more commands that managers have to answer.
    pub(crate) fn add_outstanding(&self, count: usize) {
        self.turns.outstanding.fetch_add(count, Ordering::Relaxed);
    }

    /// Uncounts `count` commands that were answered or given up.
    pub(crate) fn remove_outstanding(&self, count: usize) {
        self.turns.outstanding.fetch_sub(count, Ordering::Relaxed);
    }

    /// Number of times that the background thread has begun to drive, for tests and diagnosis.
    pub(crate) fn background_turns(&self) -> u64 {
        self.turns.background_taken.load(Ordering::Relaxed)
    }

    /// Makes the background thread do this work whenever it begins to drive. Starts that thread with the first work.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` if the thread can't be started.
    pub(crate) fn add_background_work(&'static self, work: Weak<dyn BackgroundWork>) -> Result<()> {
        let mut all = lock(&self.turns.background_work);
        all.retain(|work| work.strong_count() > 0);
        all.push(work);
        drop(all);
        let started = self.background.get_or_init(|| {
            spawn_with_signals_blocked("fpga-driver", move || self.drive_in_background()).is_ok()
        });
        if *started { Ok(()) } else { Err(ClError::OUT_OF_RESOURCES) }
    }

    fn drive_in_background(&self) {
        let turns = &self.turns;
        loop {
            let taken = turns.taken.load(Ordering::Relaxed);
            if turns.armed.swap(false, Ordering::SeqCst) {
                thread::sleep(GRACE);
            } else {
                let guard = lock(&turns.armed_lock);
                let armed = || turns.armed.load(Ordering::SeqCst);
                let driven = turns.waiting.load(Ordering::SeqCst) > 0;
                let grace = if driven { DRIVEN_GRACE } else { IDLE_GRACE };
                let waited = turns.armed_signal.wait_timeout_while(guard, grace, |()| !armed());
                drop(waited);
                if armed() {
                    continue;
                }
            }
            let driven = turns.waiting.load(Ordering::SeqCst) > 0;
            if driven || turns.taken.load(Ordering::Relaxed) != taken {
                continue;
            }
            turns.in_background.store(true, Ordering::SeqCst);
            if turns.waiting.load(Ordering::SeqCst) == 0 {
                turns.background_taken.fetch_add(1, Ordering::Relaxed);
                self.runtime.block_on(async {
                    let all = lock(&turns.background_work).clone();
                    for work in all.iter().filter_map(Weak::upgrade) {
                        work.send_releases();
                    }
                    drop(all);
                    turns.stop_background.notified().await;
                });
            }
            turns.in_background.store(false, Ordering::SeqCst);
        }
    }
}
