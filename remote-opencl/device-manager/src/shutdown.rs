//! How the manager ends, as a value that everyone who waits for something holds: it serves, then drains, then ends.
//!
//! A session that is begun ([`Shutdown::begin_session`]) is counted before the drain begins or is refused: who drains never
//! misses one.

use tokio::sync::watch;

/// How far the manager's end has come. Clones tell the same; works across threads and runtimes.
#[derive(Debug, Clone)]
pub struct Shutdown {
    phase: watch::Sender<Phase>,
    sessions: watch::Sender<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serves,
    /// No new sessions; those that are there go on.
    Drains,
    /// All sessions end.
    Ends,
    /// The same, to be started anew: this process can't serve the device any more.
    EndsFailed,
}

/// A session in the count of those that a drain waits for, until this is dropped.
#[derive(Debug)]
pub struct Counted(Shutdown);

impl Shutdown {
    /// The manager serves.
    #[must_use]
    pub fn new() -> Self {
        Self { phase: watch::Sender::new(Phase::Serves), sessions: watch::Sender::new(0) }
    }

    /// From now on there are no new sessions, and those that are there go on.
    pub fn drain(&self) {
        self.raise(Phase::Drains);
    }

    /// From now on all sessions end.
    pub fn end(&self) {
        self.raise(Phase::Ends);
    }

    /// The same, and the process ends as one that has failed, so that another is started.
    pub fn fail(&self) {
        self.raise(Phase::EndsFailed);
    }

    /// Whether there are no new sessions any more.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        *self.phase.borrow() >= Phase::Drains
    }

    /// Whether the process is to end as one that has failed.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        *self.phase.borrow() == Phase::EndsFailed
    }

    /// Waits until there are no new sessions any more.
    pub async fn draining(&self) {
        self.reached(Phase::Drains).await;
    }

    /// Waits until all sessions are to end.
    pub async fn ending(&self) {
        self.reached(Phase::Ends).await;
    }

    /// Counts a session; nothing where there are no new ones any more.
    #[must_use]
    pub fn begin_session(&self) -> Option<Counted> {
        // Before the look at the phase: a drain that has not begun by then finds the session in the count.
        let counted = Counted::new(self);
        (!self.is_draining()).then_some(counted)
    }

    /// How many sessions there are.
    #[must_use]
    pub fn sessions(&self) -> usize {
        *self.sessions.borrow()
    }

    /// Waits until there is no session.
    pub async fn no_session(&self) {
        // It can't be closed: this value holds a sender.
        let _ = self.sessions.subscribe().wait_for(|count| *count == 0).await;
    }

    async fn reached(&self, phase: Phase) {
        // It can't be closed: this value holds a sender.
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
