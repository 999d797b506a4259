//! The wish that the manager end, as a value that everyone who waits for something holds.

use tokio::sync::watch;

/// Whether the manager is to end. Clones tell the same; works across threads and runtimes.
#[derive(Debug, Clone)]
pub struct Shutdown {
    wish: watch::Sender<Wish>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    GoOn,
    End,
    /// To be started anew: this process can't serve the device any more.
    EndFailed,
}

impl Shutdown {
    /// Not yet.
    #[must_use]
    pub fn new() -> Self {
        Self { wish: watch::Sender::new(Wish::GoOn) }
    }

    /// From now on: no new sessions, running tasks come to their end.
    pub fn request(&self) {
        self.raise(Wish::End);
    }

    /// The same, and the process ends as one that has failed, so that another is started.
    pub fn fail(&self) {
        self.raise(Wish::EndFailed);
    }

    /// Whether it was requested.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        *self.wish.borrow() > Wish::GoOn
    }

    /// Whether the process is to end as one that has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        *self.wish.borrow() == Wish::EndFailed
    }

    /// Waits until it is requested.
    pub async fn requested(&self) {
        // It can't be closed: this value holds a sender.
        let _ = self.wish.subscribe().wait_for(|wish| *wish > Wish::GoOn).await;
    }

    fn raise(&self, to: Wish) {
        self.wish.send_modify(|wish| *wish = (*wish).max(to));
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}
