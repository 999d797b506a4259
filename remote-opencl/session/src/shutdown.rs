//! The phase of the manager, shared by all its parts: it serves, then drains, then ends.
//!
//! [`Shutdown::begin_session`] either counts a session before a drain begins or refuses it, so a drain waits for
//! every session.

use tokio::sync::watch;

/// The phase of the manager and the number of its sessions. Clones share them, across threads and runtimes.
#[derive(Debug, Clone)]
pub struct Shutdown {
    phase: watch::Sender<Phase>,
    sessions: watch::Sender<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serves,
    /// New sessions are refused; open sessions continue.
    Drains,
    /// All sessions end.
    Ends,
    /// All sessions end, and the process exits as failed, to be started anew: it can't serve the device any more.
    EndsFailed,
}

/// A session that a drain waits for. It counts until it is dropped.
#[derive(Debug)]
pub struct Counted(Shutdown);

impl Shutdown {
    /// The phase in which the manager serves.
    #[must_use]
    pub fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Serves), sessions: watch::Sender::new(0) }
    }

    /// Begins a drain: new sessions are refused, and open sessions continue.
    pub fn drain(&self) {
        self.raise(Phase::Drains);
    }

    /// Ends all sessions.
    pub fn end(&self) {
        self.raise(Phase::Ends);
    }

    /// Ends all sessions, and lets the process exit as failed, so that another one is started.
    pub fn fail(&self) {
        self.raise(Phase::EndsFailed);
    }

    /// Whether new sessions are refused.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.phase.borrow() >= Phase::Drains
    }

    /// Whether the process must exit as failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        *self.phase.borrow() == Phase::EndsFailed
    }

    /// Waits until new sessions are refused.
    pub async fn draining(&self) {
        self.reached(Phase::Drains).await;
    }

    /// Waits until all sessions must end.
    pub async fn ending(&self) {
        self.reached(Phase::Ends).await;
    }

    /// Counts a session; `None` if new sessions are refused.
    #[must_use]
    pub fn begin_session(&self) -> Option<Counted> {
        // The session is counted before the phase is read, so a drain that begins later waits for it.
        let counted = Counted::new(self);
        (!self.is_draining()).then_some(counted)
    }

    /// Number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        *self.sessions.borrow()
    }

    /// Waits until there is no session.
    pub async fn no_session(&self) {
        // The channel can't be closed, since `self` holds a sender.
        let _ = self.sessions.subscribe().wait_for(|count| *count == 0).await;
    }

    async fn reached(&self, phase: Phase) {
        // The channel can't be closed, since `self` holds a sender.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    fn raise(&self, to: Phase) {
        self.phase.send_modify(|phase| *phase = (*phase).max(to));
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

impl Counted {
    fn new(shutdown: &Shutdown) -> Self {
        shutdown.sessions.send_modify(|count| *count += 1);
        Self(shutdown.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.sessions.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_drain_begins_no_session_and_waits_for_those_that_were_begun() {
        let shutdown = Shutdown::new();
        let session = shutdown.begin_session().unwrap();
        shutdown.drain();
        shutdown.draining().await;
        assert!(shutdown.begin_session().is_none());
        assert_eq!(shutdown.sessions(), 1, "what was refused is not counted");
        let waits = tokio::spawn({
            let shutdown = shutdown.clone();
            async move { shutdown.no_session().await }
        });
        assert!(!waits.is_finished());
        drop(session);
        waits.await.unwrap();
    }

    #[tokio::test]
    async fn an_end_that_has_failed_stays_one() {
        let shutdown = Shutdown::new();
        shutdown.fail();
        shutdown.ending().await;
        shutdown.drain();
        shutdown.end();
        assert!(shutdown.has_failed() && shutdown.is_draining());
    }
}
