//! Moves whose replacement comes before the pod goes: which step is next.
//!
//! ```text
//!  count written, node marked, deletion cost lowered ──► one replica more ──► as many others Ready as there were with the pod? ─ no ─► wait
//!                                                         yes ─► evict the pod ──► the count as it was
//!  at any step: the time is over ─► the deletion cost and the count as they were, the pod stays
//! ```
//! Each step may be done again, so that whoever leads next goes on where the last leader ended.

/// What is seen of such a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewFirst {
    /// Whether the pod to move is there.
    pub pod: Presence,
    /// Number of Ready pods of the Deployment besides the pod.
    pub others_ready: u32,
    /// Number of Ready pods at the decision, with the pod.
    pub ready_before: u32,
    /// Whether the number of replicas is still as it was at the decision.
    pub raised: Raised,
    /// Whether there is time left for the replacement.
    pub time: TimeLeft,
}

/// Whether a pod is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// The pod is there, and stays if nobody moves it.
    There,
    /// The pod is gone or about to go.
    Gone,
}

/// Whether a Deployment has its further replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Raised {
    /// The number of replicas is as it was.
    NotYet,
    /// The Deployment has one replica more than at the decision.
    Yes,
    /// Somebody else has changed the number, and the Deployment is theirs.
    Otherwise,
}

/// Whether a replacement may still come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeLeft {
    /// The replacement may still become Ready.
    Some,
    /// The replacement has taken too long.
    None,
}

/// What is done next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The Deployment gets one replica more.
    Raise,
    /// Nothing, until there are as many Ready pods.
    Wait,
    /// The pod is evicted, and then the Deployment gets its number of replicas back.
    Evict,
    /// The pod is gone: the Deployment gets its number of replicas back.
    Restore,
    /// The pod stays: the Deployment gets its number of replicas back.
    GiveUp,
}

impl NewFirst {
    /// The next step.
    #[must_use]
    pub const fn next(&self) -> NextStep {
        match (self.pod, self.raised, self.time) {
            (Presence::Gone, ..) => NextStep::Restore,
            (Presence::There, Raised::Otherwise, _) | (Presence::There, _, TimeLeft::None) => {
                NextStep::GiveUp
            }
            (Presence::There, Raised::NotYet, TimeLeft::Some) => NextStep::Raise,
            (Presence::There, Raised::Yes, TimeLeft::Some) if self.others_ready >= self.ready_before => {
                NextStep::Evict
            }
            (Presence::There, Raised::Yes, TimeLeft::Some) => NextStep::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pod_goes_when_as_many_others_are_ready_and_the_count_is_restored_in_every_end() {
        use NextStep::{Evict, GiveUp, Raise, Restore, Wait};
        use Presence::{Gone, There};
        let (some, none) = (TimeLeft::Some, TimeLeft::None);
        for (what, pod, others_ready, raised, time, expected) in [
            ("the count is written", There, 1, Raised::NotYet, some, Raise),
            ("the replacement is missing", There, 1, Raised::Yes, some, Wait),
            ("the replacement is Ready", There, 2, Raised::Yes, some, Evict),
            ("more are Ready", There, 3, Raised::Yes, some, Evict),
            ("the replacement takes too long", There, 1, Raised::Yes, none, GiveUp),
            ("it is Ready too late", There, 2, Raised::Yes, none, GiveUp),
            ("the count was never raised", There, 1, Raised::NotYet, none, GiveUp),
            ("somebody scales in", There, 0, Raised::Otherwise, some, GiveUp),
            ("somebody scales out", There, 5, Raised::Otherwise, some, GiveUp),
            ("the pod is evicted", Gone, 2, Raised::Yes, some, Restore),
            ("the pod has gone by itself", Gone, 1, Raised::NotYet, some, Restore),
            ("it was evicted long ago", Gone, 2, Raised::Yes, none, Restore),
            ("it was evicted, and somebody scales", Gone, 4, Raised::Otherwise, some, Restore),
        ] {
            let seen = NewFirst { pod, others_ready, ready_before: 2, raised, time };
            assert_eq!(seen.next(), expected, "{what}");
        }
    }
}
