//! The wish that the manager end, as a value that everyone who waits for something holds.

use tokio::sync::watch;

/// Whether the manager is to end. Clones tell the same; works across threads and runtimes.
#[derive(Debug, Clone)]
pub struct Shutdown {
    requested: watch::Sender<bool>,
}

impl Shutdown {
    /// Not yet.
    #[must_use]
    pub fn new() -> Self {
        Self { requested: watch::Sender::new(false) }
    }

    /// From now on: no new sessions, running tasks come to their end.
    pub fn request(&self) {
        self.requested.send_replace(true);
    }

    /// Whether it was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.requested.borrow()
    }

    /// Waits until it is requested.
    pub async fn requested(&self) {
        // It can't be closed: this value holds a sender.
        let _ = self.requested.subscribe().wait_for(|requested| *requested).await;
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}
