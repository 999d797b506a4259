//! The state that the handles of a reporter and its background thread share: the queue, the devices, the counters,
//! and how far flushes have got.

use crate::devices::Devices;
use crate::queue::{Queue, lock};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::Notify;

/// The state that the handles and the background thread share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) queue: Queue,
    pub(crate) devices: Devices,
    pub(crate) counters: Counters,
    /// The number of this reporter in the identity of its events.
    pub(crate) reporter: u64,
    /// Events that the background thread has taken from the queue and the collector has not acknowledged.
    pending: AtomicUsize,
    stop: AtomicBool,
    stop_notify: Notify,
    /// Number of the newest requested flush.
    flush_wanted: AtomicU64,
    flush_done: Mutex<FlushDone>,
    flush_changed: Condvar,
}

/// How far the background thread has got.
#[derive(Debug, Default)]
struct FlushDone {
    /// Number of the newest completed flush.
    flush: u64,
    ended: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) sent: AtomicU64,
    pub(crate) retries: AtomicU64,
    pub(crate) refused: AtomicU64,
}

impl Shared {
    pub(crate) fn new(queue: Queue, reporter: u64) -> Self {
        Self {
            queue,
            devices: Devices::default(),
            counters: Counters::default(),
            reporter,
            pending: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
            stop_notify: Notify::new(),
            flush_wanted: AtomicU64::new(0),
            flush_done: Mutex::default(),
            flush_changed: Condvar::new(),
        }
    }

    /// Tells the background thread to stop.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.stop_notify.notify_one();
        self.queue.wake();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Waits until the reporter is told to stop.
    pub(crate) async fn stopped(&self) {
        while !self.is_stopped() {
            self.stop_notify.notified().await;
        }
    }

    pub(crate) fn set_pending(&self, events: usize) {
        self.pending.store(events, Ordering::Relaxed);
    }

    /// Number of events that are taken from the queue and not acknowledged.
    pub(crate) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    /// Requests a flush and waits for its end. Returns whether it was completed before `end` and before the background
    /// thread ended.
    pub(crate) fn flush(&self, end: Instant) -> bool {
        let wanted = self.flush_wanted.fetch_add(1, Ordering::SeqCst) + 1;
        self.queue.wake();
        let mut done = lock(&self.flush_done);
        while done.flush < wanted && !done.ended {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            done = self.flush_changed.wait_timeout(done, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        done.flush >= wanted
    }

    /// Number of the newest requested flush.
    pub(crate) fn flush_wanted(&self) -> u64 {
        self.flush_wanted.load(Ordering::SeqCst)
    }

    /// Records that everything reported before flush number `flush` is acknowledged.
    pub(crate) fn flushed(&self, flush: u64) {
        let mut done = lock(&self.flush_done);
        if done.flush != flush {
            done.flush = flush;
            self.flush_changed.notify_all();
        }
    }
}

/// Records the end of the background thread when dropped, so that a flush ends, too.
pub(crate) struct RecordsEnd(pub(crate) Arc<Shared>);

impl Drop for RecordsEnd {
    fn drop(&mut self) {
        lock(&self.0.flush_done).ended = true;
        self.0.flush_changed.notify_all();
    }
}
