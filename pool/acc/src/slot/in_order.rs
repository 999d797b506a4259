//! What a session's threads report, in the order of the protocol.
//!
//! The thread that opens a session reports that the session is open, and another thread reports what the manager says
//! from then on. The second one may be faster.

use std::sync::{Mutex, PoisonError};

/// Keeps what comes before the opening back, and reports it after the opening.
pub(super) struct InOrder<T> {
    report: Box<dyn Fn(T) + Send + Sync>,
    /// What came before the opening; `None` afterwards.
    early: Mutex<Option<Vec<T>>>,
}

impl<T> InOrder<T> {
    pub(super) fn new(report: impl Fn(T) + Send + Sync + 'static) -> Self {
        Self { report: Box::new(report), early: Mutex::new(Some(Vec::new())) }
    }

    /// Reports the opening, and what came before.
    pub(super) fn opened(&self, opening: T) {
        // The lock is held meanwhile: what comes now is reported last.
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        std::iter::once(opening).chain(early.take().into_iter().flatten()).for_each(&self.report);
    }

    /// Reports what the manager says, or what has become of the session.
    pub(super) fn notice(&self, event: T) {
        let mut early = self.early.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *early {
            Some(early) => early.push(event),
            None => (self.report)(event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn what_is_noticed_before_the_opening_is_reported_after_it() {
        let (reported, reports) = channel();
        let events = InOrder::new(move |event| reported.send(event).unwrap());
        events.notice("yield");
        events.notice("lost");
        assert_eq!(reports.try_iter().count(), 0);
        events.opened("opened");
        events.notice("later");
        assert_eq!(reports.try_iter().collect::<Vec<_>>(), ["opened", "yield", "lost", "later"]);
    }
}
