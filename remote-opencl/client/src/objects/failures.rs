//! A failed command of a queue that the program was not told yet.
//!
//! A runtime in the program's own process refuses a command in the enqueue call. If only the manager finds the
//! error, the call has long returned, and the program may have asked for no event. The next finish or blocking call
//! of the queue then returns the error, once, and so does a wait for a later command of the queue; unless the
//! program has seen the failure in the command's own event before.

use crate::base::sync::lock;
use crate::error::ClError;
use std::sync::Mutex;

/// The first such failure of a queue.
#[derive(Debug, Default)]
pub(crate) struct Failures(Mutex<Option<Failure>>);

#[derive(Debug, Clone, Copy)]
struct Failure {
    event: u64,
    error: ClError,
}

impl Failures {
    /// Notes that the command of this event failed. A failure that only follows from an earlier command's gives way
    /// to another cause.
    pub(crate) fn note(&self, event: u64, error: ClError) {
        let follows = |error| error == ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
        let mut first = lock(&self.0);
        if first.is_none_or(|first| follows(first.error) && !follows(error)) {
            *first = Some(Failure { event, error });
        }
    }

    /// Takes the failure, to tell the program.
    pub(crate) fn take(&self) -> Option<ClError> {
        lock(&self.0).take().map(|failure| failure.error)
    }

    /// Takes the failure if its command came before the command of this event.
    pub(crate) fn take_before(&self, event: u64) -> Option<ClError> {
        lock(&self.0).take_if(|failure| failure.event < event).map(|failure| failure.error)
    }

    /// Forgets the failure if it is that of this event, whose status the program has seen.
    pub(crate) fn seen(&self, event: u64) {
        lock(&self.0).take_if(|failure| failure.event == event);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLLOWS: ClError = ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST;
    const REFUSED: ClError = ClError::INVALID_WORK_GROUP_SIZE;

    #[test]
    fn the_first_cause_is_told_once() {
        let failures = Failures::default();
        failures.note(5, FOLLOWS);
        failures.note(4, REFUSED);
        failures.note(6, ClError::OUT_OF_RESOURCES);
        failures.note(7, FOLLOWS);
        assert_eq!(failures.take(), Some(REFUSED));
        assert_eq!(failures.take(), None);
    }

    #[test]
    fn a_failure_that_was_seen_is_not_told_again() {
        let failures = Failures::default();
        failures.note(4, REFUSED);
        failures.seen(3);
        assert_eq!(failures.take_before(4), None, "it did not come before itself");
        failures.seen(4);
        assert_eq!(failures.take(), None);
        failures.note(4, REFUSED);
        assert_eq!(failures.take_before(5), Some(REFUSED));
    }
}
