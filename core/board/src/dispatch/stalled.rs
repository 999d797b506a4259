//! Sessions whose running tasks may wait for a task of the same session that has not started: for example two kernels
//! on two queues, joined by a channel, where the one that reads was enqueued in a later task.
//!
//! Such a task cannot be told from one that only takes long. So a session that holds slots and makes no progress
//! starts its next tasks past other sessions' waiting tasks; the longer those have waited, the longer the session
//! must have stalled.

use super::{Dispatch, Grant, Holder, Waiting};
use crate::slots::SessionId;
use std::collections::VecDeque;
use std::time::Duration;

/// Minimum time without progress before a session starts a task past others.
pub const MIN_STALL: Duration = Duration::from_millis(10);

/// Divisor of the longest wait of another session's head: a session must have made no progress for that part of the
/// wait before it starts a task past that head.
pub const STALL_PER_WAIT: u32 = 8;

impl Dispatch {
    /// Starts tasks, past all heads, of sessions that hold slots and have stalled: none of their tasks has started or
    /// ended for [`MIN_STALL`], nor for an eighth ([`STALL_PER_WAIT`]) of the time that the longest-waiting head of
    /// another session has waited. Of such a session the next tasks start, up to the first that may run beside its
    /// running ones. The caller calls this at intervals while tasks wait.
    ///
    /// Progress: a session whose running tasks wait for a later one of its own gets that one, since the time for
    /// which it stalls grows eight times as fast as the time that it must stall for. Bound: where every task ends at
    /// most `d` after its start, no task starts past a head that has waited `8 d`, and the slots that this head waits
    /// for are free after `9 d`.
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

    /// Whether one of the session's waiting tasks may run beside its running ones.
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
