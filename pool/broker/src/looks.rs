//! Looks at the pool. They are answered one after another with pauses, whoever looks, so that decisions and the checks of
//! streams' tokens don't wait for them.

use crate::state::Viewer;
use fpga_pool_api::limits::HANDSHAKE_TIMEOUT;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex as Turn, Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout};
use tonic::Status;

/// Time between two views of the pool, for all who look. A view takes the owner a few milliseconds.
pub const PAUSE: Duration = Duration::from_millis(100);
/// Most looks of a namespace at once, or of all operators, until their answers are read.
const MAX_LOOKS_OF_VIEWER: usize = 4;
/// Most tokens of looks that are checked at once: a few of the checks that the API server is asked for at once.
const MAX_CHECKS: usize = 4;

/// The looks that are under way.
#[derive(Debug)]
pub struct Looks {
    checks: Semaphore,
    of_viewers: Mutex<HashMap<Viewer, usize>>,
    /// The moment before which there is no other view.
    next: Turn<Instant>,
}

/// A look. Dropping it makes room for another one of the viewer.
#[derive(Debug)]
pub struct Look {
    viewer: Viewer,
    looks: Arc<Looks>,
}

impl Default for Looks {
    fn default() -> Self {
        Self {
            checks: Semaphore::new(MAX_CHECKS),
            of_viewers: Mutex::default(),
            next: Turn::new(Instant::now()),
        }
    }
}

impl Looks {
    /// Waits until a token may be checked, which lasts until the result is dropped.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if that takes too long.
    pub async fn check(&self) -> Result<SemaphorePermit<'_>, Status> {
        let check = timeout(HANDSHAKE_TIMEOUT, self.checks.acquire()).await;
        // The semaphore is never closed.
        let check = check.ok().and_then(Result::ok);
        check.ok_or_else(|| {
            Status::resource_exhausted("too many look at the pool: look again in some seconds")
        })
    }

    /// Begins a look.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if the viewer has too many.
    pub fn begin(self: &Arc<Self>, viewer: Viewer) -> Result<Look, Status> {
        let mut of_viewers = self.of_viewers.lock();
        let looks = of_viewers.entry(viewer.clone()).or_default();
        if *looks >= MAX_LOOKS_OF_VIEWER {
            return Err(Status::resource_exhausted(format!(
                "{MAX_LOOKS_OF_VIEWER} looks of the namespace, or of operators, are under way: look again when one has \
                 its answer"
            )));
        }
        *looks += 1;
        Ok(Look { viewer, looks: Arc::clone(self) })
    }
}

impl Look {
    /// The tenant or the operator that gets the view.
    #[must_use]
    pub fn viewer(&self) -> &Viewer {
        &self.viewer
    }

    /// Takes the view when it is the look's turn.
    pub async fn take<T>(&self, view: impl Future<Output = T>) -> T {
        let mut next = self.looks.next.lock().await;
        sleep_until(*next).await;
        // Before the view: who gives up meanwhile has been shown one nevertheless.
        *next = Instant::now() + PAUSE;
        view.await
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        let mut of_viewers = self.looks.of_viewers.lock();
        if let Some(looks) = of_viewers.get_mut(&self.viewer) {
            *looks -= 1;
            if *looks == 0 {
                of_viewers.remove(&self.viewer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_board::dispatch::Tenant;
    use futures::FutureExt as _;

    #[tokio::test]
    async fn a_viewer_has_few_looks_at_once_and_tokens_of_looks_are_checked_a_few_at_a_time() {
        let looks = Arc::<Looks>::default();
        let tenant = |name: &str| Viewer::Tenant(Tenant::new(name));
        let mut of_a: Vec<Look> =
            (0..MAX_LOOKS_OF_VIEWER).map(|_| looks.begin(tenant("a")).unwrap()).collect();
        let refused = looks.begin(tenant("a")).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::ResourceExhausted);
        let of_others = [looks.begin(tenant("b")), looks.begin(Viewer::Operator)];
        assert!(of_others.iter().all(Result::is_ok));
        of_a.pop();
        of_a.push(looks.begin(tenant("a")).unwrap());
        drop((of_a, of_others));
        assert!(looks.of_viewers.lock().is_empty());
        let mut checks = Vec::new();
        for _ in 0..MAX_CHECKS {
            checks.push(looks.check().now_or_never().unwrap().unwrap());
        }
        assert!(looks.check().now_or_never().is_none());
        drop(checks);
        assert!(looks.check().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn views_are_taken_one_after_another_with_pauses() {
        let looks = Arc::<Looks>::default();
        let moments = [looks.begin(Viewer::Operator).unwrap(), looks.begin(Viewer::Operator).unwrap()]
            .map(|look| tokio::spawn(async move { look.take(async { Instant::now() }).await }));
        let [first, second] = moments.map(async |moment: tokio::task::JoinHandle<Instant>| moment.await);
        let (first, second) = (first.await.unwrap(), second.await.unwrap());
        assert_eq!(first.max(second) - first.min(second), PAUSE);
    }
}
