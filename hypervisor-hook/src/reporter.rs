//! The handle that a device runtime holds. It starts the background thread.

use crate::config::Config;
use crate::devices::Wanted;
use crate::dispatch::Dispatch;
use crate::queue::{Queue, lock};
use crate::shared::{RecordsEnd, Shared};
use fpga_core::device::{DeviceStatus, Rotation};
use fpga_core::event::Event;
use fpga_foreign_process::spawn_with_signals_blocked;
use std::hash::{BuildHasher, Hasher};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Reports to the collector of the node. Clones share one queue and one background thread, which ends with the last
/// clone.
#[derive(Debug, Clone)]
pub struct Reporter {
    inner: Arc<Inner>,
}

/// Reason why the reporter could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The system could not provide a thread, a runtime or a signal mask.
    #[error("cannot start the reporter's thread: {0}")]
    Thread(#[source] std::io::Error),
}

/// The deadline passed before all events were acknowledged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("about {events} events were not acknowledged by the collector in time")]
pub struct Unsent {
    /// Approximate number of unacknowledged events; other threads may report at the same time.
    pub events: usize,
}

/// Counters of a reporter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that are not acknowledged yet.
    pub queued: usize,
    /// Reports that found the queue full and were merged into a sum.
    pub merged: u64,
    /// Events acknowledged by the collector; a sum counts as one.
    pub sent: u64,
    /// Requests that failed and were repeated.
    pub retries: u64,
    /// Events that the collector refused as invalid; their time is lost.
    pub refused: u64,
    /// Progress reports that were left out; the final events of those tasks carry the whole time.
    pub progress_skipped: u64,
}

#[derive(Debug)]
struct Inner {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Reporter {
    /// Starts the background thread. The collector may start later.
    ///
    /// # Errors
    /// [`StartError`] if the system provides no thread or runtime, or signals cannot be blocked.
    pub fn start(config: Config) -> Result<Self, StartError> {
        let (queue, receiver) = Queue::new(config.queue_capacity);
        let shared = Arc::new(Shared::new(queue, random_id()));
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(StartError::Thread)?;
        let of_thread = Arc::clone(&shared);
        let body = move || {
            // Also when the thread unwinds, so that no caller waits for it in vain.
            let _ended = RecordsEnd(Arc::clone(&of_thread));
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, async move { Dispatch::new(config, of_thread, receiver).run().await });
        };
        let thread = spawn_with_signals_blocked("fpga-hook", body).map_err(StartError::Thread)?;
        Ok(Self { inner: Arc::new(Inner { shared, thread: Mutex::new(Some(thread)) }) })
    }

    /// Reports `event`; its `identity` and `merged` are overwritten. Never waits for the collector: when the queue is
    /// full, the event is merged into a sum.
    pub fn report(&self, mut event: Event) {
        event.identity = None;
        event.merged = None;
        self.inner.shared.queue.push(event);
    }

    /// Reports the status of a device. The newest status is sent again to a collector that comes back.
    pub fn device(&self, status: DeviceStatus) {
        let shared = &self.inner.shared;
        let id = status.id.clone();
        shared.devices.set(&id, Wanted::Status(Box::new(status)));
    }

    /// Whether a device is in rotation, by the collector's answer to its last status. It is until the collector has
    /// answered.
    #[must_use]
    pub fn rotation(&self, id: &str) -> Rotation {
        self.inner.shared.devices.rotation(id)
    }

    /// Reports that a device is gone for good, as at an orderly end of its runtime.
    pub fn device_gone(&self, id: &str) {
        self.inner.shared.devices.set(id, Wanted::Gone);
    }

    /// Waits until the collector has acknowledged everything that was reported before the call.
    ///
    /// # Errors
    /// [`Unsent`] if `deadline` passes first; the rest is still sent later.
    pub fn flush(&self, deadline: Duration) -> Result<(), Unsent> {
        let shared = &self.inner.shared;
        if shared.flush(Instant::now() + deadline) {
            Ok(())
        } else {
            Err(Unsent { events: self.stats().queued })
        }
    }

    /// Like [`Self::flush`]; then ends the background thread, for all clones.
    ///
    /// # Errors
    /// [`Unsent`] if `deadline` passes first; the rest is given up.
    pub fn shutdown(&self, deadline: Duration) -> Result<(), Unsent> {
        let flushed = self.flush(deadline);
        self.inner.shared.stop();
        if let Some(thread) = lock(&self.inner.thread).take() {
            // The thread waits only for the network, and no longer once it is told to stop. Its panic was logged.
            let _ = thread.join();
        }
        flushed
    }

    /// The counters so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let shared = &self.inner.shared;
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Stats {
            queued: shared.queue.len() + shared.pending(),
            merged: load(&shared.queue.merged),
            sent: load(&shared.counters.sent),
            retries: load(&shared.counters.retries),
            refused: load(&shared.counters.refused),
            progress_skipped: load(&shared.queue.progress_skipped),
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.stop();
    }
}

/// A random number, so that no other process has the same: the standard library seeds its hash maps from the system's
/// random source.
fn random_id() -> u64 {
    let mut hasher = std::hash::RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.finish()
}
