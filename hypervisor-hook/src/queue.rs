//! The way from the accelerated path to the background thread: a bounded queue, and sums of the events that find it
//! full.
//!
//! **Memory is bounded however long the collector is away.** The queue holds `capacity` events, and [`crate::merge`]
//! bounds the number of sums. Whole events beside the queue are at most [`MAX_ANNOUNCED`] and at most `capacity`: an
//! event is kept whole only if progress of its task was put into the queue, so each of them has had a place there.
//!
//! The usual case takes no lock. With a full queue, a lock is held for one map operation by the thread that merges,
//! or by the background thread while it swaps the map out; no thread does I/O while it holds the lock.

use crate::merge::Overflow;
use fpga_core::event::{Event, Phase};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use tokio::sync::Notify;

/// Number of separate sets of sums, so that threads that merge rarely wait for each other.
const SHARDS: usize = 4;

/// Maximum number of tasks whose progress is in the queue or was sent and whose end was not reported: more than any
/// board has slots. Progress of further tasks is left out.
const MAX_ANNOUNCED: usize = 1024;

/// The part of the queue that reporting threads and the background thread share.
#[derive(Debug)]
pub(crate) struct Queue {
    sender: SyncSender<Event>,
    capacity: usize,
    /// Approximate number of events in the channel.
    queued: AtomicUsize,
    overflow: [Mutex<Overflow>; SHARDS],
    /// Tasks whose progress is in the queue or was sent, and whose end was not reported.
    announced: Mutex<HashSet<u64>>,
    announced_len: AtomicUsize,
    wake: Notify,
    pub(crate) merged: AtomicU64,
    pub(crate) progress_skipped: AtomicU64,
}

impl Queue {
    /// A queue for `capacity` events, and its receiving end.
    pub(crate) fn new(capacity: usize) -> (Self, Receiver<Event>) {
        let capacity = capacity.max(1);
        let (sender, receiver) = sync_channel(capacity);
        let queue = Self {
            sender,
            capacity,
            queued: AtomicUsize::new(0),
            overflow: std::array::from_fn(|_| Mutex::default()),
            announced: Mutex::default(),
            announced_len: AtomicUsize::new(0),
            wake: Notify::new(),
            merged: AtomicU64::new(0),
            progress_skipped: AtomicU64::new(0),
        };
        (queue, receiver)
    }

    /// Queues `event`, merges it, or leaves it out if it is progress. Never waits for the network.
    pub(crate) fn push(&self, event: Event) {
        match event.phase {
            Phase::Running => self.push_progress(event),
            Phase::Final => self.push_final(event),
        }
    }

    /// Queues progress, or leaves it out if the queue is full: the final event carries the whole duration.
    fn push_progress(&self, event: Event) {
        // Progress without a task could never be replaced and would count twice.
        let sent = event.task.is_some_and(|task| {
            let mut announced = lock(&self.announced);
            if announced.len() >= MAX_ANNOUNCED && !announced.contains(&task) {
                return false;
            }
            // Only progress that was sent has to be replaced. The end of a task whose progress found no room can be
            // merged.
            let sent = self.try_send(event).is_ok();
            if sent {
                announced.insert(task);
                self.announced_len.store(announced.len(), Ordering::Release);
            }
            sent
        });
        if !sent {
            self.progress_skipped.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn push_final(&self, event: Event) {
        let replaces_progress = event.task.is_some_and(|task| self.forget(task));
        if let Err(event) = self.try_send(event) {
            let mut overflow = self.some_overflow();
            if replaces_progress {
                overflow.keep(event);
            } else {
                overflow.merge(event);
                self.merged.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    #[expect(clippy::result_large_err, reason = "the event itself comes back, to be merged")]
    fn try_send(&self, event: Event) -> Result<(), Event> {
        // Counted before the receiver can take it, so that the count is never less than what was taken.
        let before = self.queued.fetch_add(1, Ordering::Relaxed);
        match self.sender.try_send(event) {
            Ok(()) => {
                // Waking a thread costs more than queuing a hundred events. The thread wakes by itself often enough,
                // except when the queue fills up.
                if before.saturating_add(1) == self.capacity.div_ceil(2) {
                    self.wake.notify_one();
                }
                Ok(())
            }
            // `Disconnected` means that the background thread ended at a shutdown; later reports are merged and stay.
            Err(TrySendError::Full(event) | TrySendError::Disconnected(event)) => {
                self.queued.fetch_sub(1, Ordering::Relaxed);
                Err(event)
            }
        }
    }

    /// An overflow that no thread holds. Waits only if all of them are held.
    fn some_overflow(&self) -> MutexGuard<'_, Overflow> {
        for shard in &self.overflow {
            match shard.try_lock() {
                Ok(guard) => return guard,
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {}
            }
        }
        lock(&self.overflow[0])
    }

    fn forget(&self, task: u64) -> bool {
        // A task's end is reported after its progress, so a 0 here can't be older than the task's announcement.
        if self.announced_len.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut announced = lock(&self.announced);
        let known = announced.remove(&task);
        self.announced_len.store(announced.len(), Ordering::Release);
        known
    }

    /// Wakes the background thread from its pause.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until [`Self::wake`] is called.
    pub(crate) async fn woken(&self) {
        self.wake.notified().await;
    }

    /// Takes everything that was reported before the call, oldest first and sums last, at most two queues full.
    pub(crate) fn drain(&self, receiver: &Receiver<Event>, into: &mut impl Extend<Event>) {
        // Take the sums before the queue: the events that were queued when the sums were made are then still there,
        // and come first.
        let overflow = self.overflow.each_ref().map(|shard| std::mem::take(&mut *lock(shard)));
        let mut taken = 0;
        into.extend(receiver.try_iter().take(self.capacity).inspect(|_| taken += 1));
        self.queued.fetch_sub(taken, Ordering::Relaxed);
        into.extend(overflow.into_iter().flat_map(Overflow::into_events));
    }

    /// Number of events in the queue.
    pub(crate) fn len(&self) -> usize {
        self.queued.load(Ordering::Relaxed)
    }
}

/// Locks `mutex`, also after a panic of a holder: every holder leaves the value consistent.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_core::units::{Millis, WallTime};
    use std::collections::HashMap;

    fn mk_event(task: u64, phase: Phase) -> Event {
        Event {
            task: Some(task),
            phase,
            device: Some("dm0".to_owned()),
            ..Event::of_task(WallTime(1_000_000 + task), Millis(3), "sobel".parse().unwrap())
        }
    }

    #[test]
    fn while_nobody_takes_events_tasks_with_progress_need_no_more_room_than_others() {
        const CAPACITY: usize = 64;
        const TASKS: u64 = 20_000;
        let (queue, receiver) = Queue::new(CAPACITY);
        for task in 0..TASKS {
            queue.push(mk_event(task, Phase::Running));
            queue.push(mk_event(task, Phase::Final));
        }
        let mut events = Vec::new();
        queue.drain(&receiver, &mut events);
        assert!(events.len() <= 2 * CAPACITY + SHARDS, "{} events were kept", events.len());

        // Each task's time is there once, and no progress is left without an event that replaces it.
        let mut time = 0;
        let mut running = HashMap::new();
        for event in events {
            match (event.phase, event.task) {
                (Phase::Running, Some(task)) => {
                    running.insert(task, event.duration_ms.0);
                }
                (_, task) => {
                    task.map(|task| running.remove(&task));
                    time += event.duration_ms.0;
                }
            }
        }
        assert_eq!((time, running.len()), (3 * TASKS, 0));
        assert!(lock(&queue.announced).is_empty());
    }

    #[test]
    fn an_event_is_counted_before_it_can_be_taken() {
        const EVENTS: u64 = 200_000;
        const CAPACITY: usize = 64;
        let (queue, receiver) = Queue::new(CAPACITY);
        std::thread::scope(|scope| {
            let sender =
                scope.spawn(|| (0..EVENTS).for_each(|task| queue.push(mk_event(task, Phase::Final))));
            while !sender.is_finished() {
                if receiver.try_recv().is_ok() {
                    let queued = queue.queued.load(Ordering::Relaxed);
                    // Those in the channel, the one that was taken, and one that is refused just now.
                    assert!((1..=CAPACITY + 2).contains(&queued), "{queued} events are counted");
                    queue.queued.fetch_sub(1, Ordering::Relaxed);
                }
            }
        });
    }
}
