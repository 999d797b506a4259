//! What every floor uses of the process: clock, locks, forked children, threads.

pub(crate) mod clock;
pub(crate) mod closed_in_children;
pub(crate) mod sync;
