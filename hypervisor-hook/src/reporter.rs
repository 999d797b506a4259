//! The handle that a device runtime holds, and what it shares with the background thread.

use crate::config::Config;
use crate::devices::{Devices, Wanted};
use crate::dispatch::Dispatch;
use crate::queue::{Queue, lock};
use fpga_core::device::DeviceStatus;
use fpga_core::event::Event;
use nix::sys::signal::{SigSet, SigmaskHow};
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Reports to the collector of the node. Clones are cheap and report to the same place; the background thread ends with
/// the last of them.
#[derive(Debug, Clone)]
pub struct Reporter {
    inner: Arc<Inner>,
}

/// Why there is no reporter.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system gave no thread or no runtime.
    #[error("cannot start the reporter's thread: {0}")]
    Thread(#[source] std::io::Error),
    /// The signal mask could not be set.
    #[error("cannot block signals for the reporter's thread: {0}")]
    Signals(#[source] nix::Error),
}

/// The deadline passed before all events were acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("about {events} events were not acknowledged by the collector in time")]
pub struct Unsent {
    /// How many, more or less: others may report meanwhile.
    pub events: usize,
}

/// What the reporter has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that wait to be acknowledged.
    pub queued: usize,
    /// Reports that found the queue full and went into a sum.
    pub merged: u64,
    /// Events acknowledged by the collector; a sum is one.
    pub sent: u64,
    /// Requests that failed and were tried again.
    pub retries: u64,
    /// Events that the collector refused for what they say; their time is lost.
    pub refused: u64,
    /// Progress of running tasks that was left out; their final events carry the whole time.
    pub progress_skipped: u64,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the handles and the background thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) devices: Devices,
    pub(crate) counters: Counters,
    pub(crate) reporter: u64,
    pending: AtomicUsize,
    stop: AtomicBool,
    stop_notify: Notify,
    flush_wanted: AtomicU64,
    flush_done: Mutex<FlushDone>,
    flush_changed: Condvar,
}

/// How far the background thread has come.
#[derive(Debug, Default)]
struct FlushDone {
    /// The newest flush that is done.
    flush: u64,
    /// Whether the thread has ended.
    ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Reporter {
    /// Starts the background thread. The collector need not be there yet.
    ///
    /// # Errors
    /// [`StartError`] where the system gives no thread.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let (queue, receiver) = Queue::new(config.queue_capacity);
        let shared = Arc::new(Shared {
            queue,
            devices: Devices::default(),
            counters: Counters::default(),
            reporter: random_id(),
            pending: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            stop_notify: Notify::new(),
            flush_wanted: AtomicU64::new(0),
            flush_done: Mutex::default(),
            flush_changed: Condvar::new(),
        });
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let of_thread = Arc::clone(&shared);
        let body = move || {
            // Also when the thread unwinds: nobody shall wait for it in vain.
            let _ended = Ended(Arc::clone(&of_thread));
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move { Dispatch::new(config, of_thread, receiver).run().await });
        };
        let thread = spawn_without_signals(body)?;
        Ok(Self { inner: Arc::new(Inner { shared, thread: Mutex::new(Some(thread)) }) })
    }

    /// Reports `event`; its `identity` and `merged` are set here, whatever they were. Never waits for the collector: when the
    /// queue is full, the event goes into a sum.
    pub fn report(&self, mut event: Event) {
        event.identity = None;
        event.merged = None;
        self.inner.shared.queue.push(event);
    }

    /// Tells the collector the newest status of a device, now and again whenever it comes back.
    pub fn device(&self, status: DeviceStatus) {
        let shared = &self.inner.shared;
        let id = status.id.clone();
        shared.devices.set(&id, Wanted::Status(Box::new(status)));
    }

    /// Tells the collector that a device is gone for good, as at an orderly end of its runtime.
    pub fn device_gone(&self, id: &str) {
        self.inner.shared.devices.set(id, Wanted::Gone);
    }

    /// Waits until the collector has acknowledged all that was reported before the call.
    ///
    /// # Errors
    /// [`Unsent`] when `deadline` passes first; what is left is still sent later.
    pub fn flush(&self, deadline: Duration) -> Result<(), Unsent> {
        let shared = &self.inner.shared;
        let end = Instant::now() + deadline;
        let wanted = shared.flush_wanted.fetch_add(1, Ordering::SeqCst) + 1;
        shared.queue.wake();
        let mut done = lock(&shared.flush_done);
        while done.flush < wanted && !done.ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            done = shared.flush_changed.wait_timeout(done, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        if done.flush >= wanted { Ok(()) } else { Err(Unsent { events: self.stats().queued }) }
    }

    /// Like [`Self::flush`], then ends the background thread, for all clones.
    ///
    /// # Errors
    /// [`Unsent`] when `deadline` passes first; what is left is given up.
    pub fn shutdown(&self, deadline: Duration) -> Result<(), Unsent> {
        let flushed = self.flush(deadline);
        self.inner.stop();
        if let Some(thread) = lock(&self.inner.thread).take() {
            // It waits for nothing but the network, and no longer once told to stop; a panic of it was logged.
            let _ = thread.join();
        }
        flushed
    }

    /// What the reporter has done so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            queued: shared.queue.len() + shared.pending.load(Ordering::Relaxed),
            merged: load(&shared.queue.merged),
            sent: load(&shared.counters.sent),
            retries: load(&shared.counters.retries),
            refused: load(&shared.counters.refused),
            progress_skipped: load(&shared.queue.progress_skipped),
        }
    }
}

impl Inner {
    fn stop(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.stop_notify.notify_one();
        self.shared.queue.wake();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Waits to be told to stop.
    pub(crate) async fn stopped(&self) {
        while !self.is_stopped() {
            self.stop_notify.notified().await;
        }
    }

    pub(crate) fn set_pending(&self, events: usize) {
        self.pending.store(events, Ordering::Relaxed);
    }

    /// The newest flush that was asked for.
    pub(crate) fn flush_wanted(&self) -> u64 {
        self.flush_wanted.load(Ordering::SeqCst)
    }

    /// Says that all that was reported before flush number `flush` is acknowledged.
    pub(crate) fn flushed(&self, flush: u64) {
        let mut done = lock(&self.flush_done);
        if done.flush != flush {
            done.flush = flush;
            self.flush_changed.notify_all();
        }
    }
}

/// Says at the end of the thread that it has ended.
struct Ended(Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        lock(&self.0.flush_done).ended = true;
        self.0.flush_changed.notify_all();
    }
}

/// Runs `body` in a thread that no signal of the application ever lands on; a thread takes its mask from the one that
/// makes it.
fn spawn_without_signals(body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK).map_err(StartError::Signals)?;
    let spawned = std::thread::Builder::new().name("fpga-hook".to_owned()).spawn(body);
    before.thread_set_mask().map_err(StartError::Signals)?;
    spawned.map_err(StartError::Thread)
}

/// A number that no other process has: the standard library seeds its hash maps from the system's random source.
fn random_id() -> u64 {
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}
