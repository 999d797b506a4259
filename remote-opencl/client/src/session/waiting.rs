//! Waiting for what a manager reports: by polling for a short time where that is faster, else asleep.

use super::Session;
use crate::session::adaptive_spin::Wait;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

impl Session {
    /// Sends the content of the outbox and waits for `future`, which is ready when `is_done` returns true.
    pub(crate) fn wait<F: Future>(&self, is_done: impl Fn() -> bool, future: F) {
        let wait = self.adaptive_spin.wait();
        if self.ring.is_some() {
            self.outbox.wake();
            self.spin_on_ring(wait.as_ref(), &is_done);
            if is_done() {
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
}
