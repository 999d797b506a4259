//! Sessions whose running tasks may wait for one of theirs that has not started: kernels joined by a channel, on two queues,
//! where the one that reads came in a later task.
//!
//! Nobody can tell such a task from one that only takes long. So a session that holds slots and makes no progress starts
//! its next tasks past those that wait before them, the more slowly the longer others have waited.

use super::{Dispatch, Grant, Holder, Waiting};
use crate::slots::SessionId;
use std::collections::VecDeque;
use std::time::Duration;

/// How long a session makes no progress at least before it starts a task past others.
pub const MIN_STALL: Duration = Duration::from_millis(10);

/// The part of the longest wait of another session's head for which a session makes no progress before it starts a task
/// past that head.
pub const STALL_PER_WAIT: u32 = 8;

impl Dispatch {
    /// Starts tasks of sessions that hold slots, of which none has started or ended for [`MIN_STALL`] and for an eighth
    /// ([`STALL_PER_WAIT`]) of the time that the longest waiting head of another session has waited, past all heads: the
    /// session's next tasks up to the first that may run beside those that run. Called every now and then while tasks wait.
    ///
    /// Progress: a session whose running tasks wait for a later one of its own gets that one, since it stalls for a longer
    /// and longer time while the others' wait grows eight times slower. The bound: where every task ends at most `d` after
    /// its start, nothing starts past a head that has waited `8 d`, and slots that it waits for are free after `9 d`.
    pub fn start_stalled(&mut self, now: Duration) -> Vec<Grant> {
        let stalled = |(session, holder): (&SessionId, &Holder)| {
            let queue = self.waiting.get(session)?;
            let stall = now.saturating_sub(holder.last_change);
            let wait = self.longest_wait_of_others(*session, now);
            (stall >= MIN_STALL && stall >= wait / STALL_PER_WAIT && self.may_help(*session, queue))
                .then_some(*session)
        };
        let stalled: Vec<SessionId> = self.holders.iter().filter_map(stalled).collect();
        stalled.into_iter().flat_map(|session| self.start_beside(session, now)).collect()
    }

    fn longest_wait_of_others(&self, session: SessionId, now: Duration) -> Duration {
        let other = self.heads.values().find(|other| **other != session);
        let first = other.and_then(|other| self.first_of(*other));
        first.map_or(Duration::ZERO, |first| now.saturating_sub(first.since))
    }

    /// Whether one of the session's waiting tasks may run beside those that run.
    fn may_help(&self, session: SessionId, queue: &VecDeque<Waiting>) -> bool {
        queue.iter().any(|waiting| self.runs_beside(session, waiting))
    }

    fn runs_beside(&self, session: SessionId, waiting: &Waiting) -> bool {
        let running = self.running.values().filter(|running| running.session == session);
        waiting.request.lanes.has_one_beside(&running.map(|running| &running.lanes))
    }

    fn start_beside(&mut self, session: SessionId, now: Duration) -> Vec<Grant> {
        let mut grants = Vec::new();
        loop {
            let helps = self.first_of(session).is_some_and(|first| self.runs_beside(session, first));
            let started = self.start_head_of(session, u32::MAX, now);
            if started.is_empty() {
                return grants;
            }
            grants.extend(started);
            if helps {
                return grants;
            }
        }
    }
}

#[cfg(test)]
mod tests;
