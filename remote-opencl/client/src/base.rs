//! What every floor uses of the process: clock, locks, forked children, threads.

pub(crate) mod clock;
pub(crate) mod fork;
pub(crate) mod per_process;
pub(crate) mod signals;
pub(crate) mod sync;
