//! The progress of a queue: its commands that haven't ended, and the tasks that wait for them.

use crate::base::sync::lock;
use std::collections::BTreeSet;
use std::future::poll_fn;
use std::sync::Mutex;
use std::task::{Poll, Waker};

/// The enqueued commands of a queue that haven't ended, by the ids of their events.
#[derive(Debug, Default)]
pub(crate) struct Progress(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    open: BTreeSet<u64>,
    /// The last barrier, also after it has ended.
    barrier: Option<u64>,
    wakers: Vec<(u64, Waker)>,
}

impl Progress {
    /// Adds a command that is enqueued.
    pub(crate) fn begin(&self, event: u64) {
        lock(&self.0).open.insert(event);
    }

    /// Notes that this command is the last barrier of an out-of-order queue.
    pub(crate) fn set_barrier(&self, event: u64) {
        lock(&self.0).barrier = Some(event);
    }

    /// The last barrier, if it hasn't ended. Commands that complete in the client depend on it.
    pub(crate) fn open_barrier(&self) -> Option<u64> {
        let inner = lock(&self.0);
        inner.barrier.filter(|barrier| inner.open.contains(barrier))
    }

    /// Removes a command that ended, and wakes the tasks that waited for it.
    pub(crate) fn ended(&self, event: u64) {
        let woken: Vec<_> = {
            let mut inner = lock(&self.0);
            inner.open.remove(&event);
            let first = inner.open.first().copied().unwrap_or(u64::MAX);
            inner.wakers.extract_if(.., |(last, _)| *last < first).collect()
        };
        for (_, waker) in woken {
            waker.wake();
        }
    }

    /// Id of the newest command that hasn't ended.
    pub(crate) fn last(&self) -> Option<u64> {
        lock(&self.0).open.last().copied()
    }

    /// Whether all commands up to `last` have ended, in any order.
    pub(crate) fn have_ended(&self, last: u64) -> bool {
        lock(&self.0).open.first().is_none_or(|first| *first > last)
    }

    /// Waits until [`Self::have_ended`].
    pub(crate) async fn ended_until(&self, last: u64) {
        poll_fn(|cx| {
            let mut inner = lock(&self.0);
            if inner.open.first().is_none_or(|first| *first > last) {
                return Poll::Ready(());
            }
            let known = |(its, waker): &(u64, Waker)| *its == last && waker.will_wake(cx.waker());
            if !inner.wakers.iter().any(known) {
                inner.wakers.push((last, cx.waker().clone()));
            }
            Poll::Pending
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn finish_waits_for_what_was_enqueued_before_it_and_nothing_else() {
        let progress = Progress::default();
        for event in [1, 2, 5] {
            progress.begin(event);
        }
        let last = progress.last().unwrap();
        progress.begin(9);
        // Commands of an out-of-order queue end in any order.
        for event in [5, 1] {
            progress.ended(event);
            assert!(progress.ended_until(last).now_or_never().is_none());
        }
        progress.ended(2);
        assert!(progress.ended_until(last).now_or_never().is_some());
        assert_eq!(progress.last(), Some(9));
    }

    #[test]
    fn a_barrier_is_open_until_it_has_ended() {
        let progress = Progress::default();
        progress.begin(3);
        assert_eq!(progress.open_barrier(), None);
        progress.begin(4);
        progress.set_barrier(4);
        progress.ended(3);
        assert_eq!(progress.open_barrier(), Some(4));
        progress.ended(4);
        assert_eq!(progress.open_barrier(), None);
    }

    #[test]
    fn an_empty_queue_is_finished() {
        assert_eq!(Progress::default().last(), None);
        assert!(Progress::default().ended_until(7).now_or_never().is_some());
    }
}
