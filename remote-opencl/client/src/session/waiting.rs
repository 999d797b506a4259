//! Waiting for what a manager reports: by polling for a short time where that is faster, else asleep. Over a ring a
//! thread first dozes; a thread that waits for longer drives the runtime, which also notices the end of the manager.

use super::Session;
use crate::session::adaptive_spin::Wait;
use crate::wire::command_ring::Dozing;
use fpga_ring::Readiness;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Longest time to doze. A command that takes longer isn't delayed noticeably by the dearer way of waking.
const LONGEST_DOZE: Duration = Duration::from_millis(2);

impl Session {
    /// Sends the content of the outbox and waits for `future`, which is ready when `is_done` returns true.
    pub(crate) fn wait<F: Future>(&self, is_done: impl Fn() -> bool, future: F) {
        let wait = self.adaptive_spin.wait();
        let mut future = pin!(future);
        if self.ring.is_some() {
            self.outbox.wake();
            self.spin_on_ring(wait.as_ref(), &is_done);
            if is_done() || self.doze(future.as_mut()).is_some() {
                self.driver.arm_if_outstanding();
                return;
            }
        }
        self.driver.block_on(async {
            self.outbox.wake();
            self.spin_then_wait(wait.as_ref(), future).await;
        });
    }

    /// Waits for `future` on the thread that drives. Without a ring, the thread first polls before it sleeps, if
    /// that is faster.
    pub(super) async fn spin_then_wait<F: Future>(&self, wait: Option<&Wait<'_>>, future: F) -> F::Output {
        let mut future = pin!(future);
        if let Some(wait) = wait.filter(|wait| wait.spins() && self.ring.is_none()) {
            while !wait.is_over() {
                if let Poll::Ready(output) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
                    return output;
                }
                // Sends and receives everything that needs no waiting.
                tokio::task::yield_now().await;
            }
        }
        future.await
    }

    /// Waits for `future` asleep on the ring; `None` if that takes too long, or if this thread has to drive, since
    /// messages wait for room in the ring.
    pub(super) fn doze<F: Future>(&self, future: Pin<&mut F>) -> Option<F::Output> {
        let ring = self.ring.as_ref()?;
        let dozing = ring.doze()?;
        let output = self.doze_until(&dozing, &Waker::from(Arc::clone(ring)), future);
        if dozing.end() == Readiness::Ready {
            self.drain_ring();
        }
        output
    }

    fn doze_until<F: Future>(
        &self,
        dozing: &Dozing<'_>,
        waker: &Waker,
        mut future: Pin<&mut F>,
    ) -> Option<F::Output> {
        let mut context = Context::from_waker(waker);
        let until = Instant::now() + LONGEST_DOZE;
        loop {
            let look = dozing.look();
            self.drain_ring();
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || !self.outbox.is_sent() {
                return None;
            }
            // The thread that drives finds an error again.
            dozing.sleep(look, left).ok()?;
        }
    }
}
