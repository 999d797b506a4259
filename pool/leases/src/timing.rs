//! The protocol's times. Each is counted on the monotonic clock of the party that has the timer, so that no two clocks
//! need to agree.

use fpga_core::units::Millis;

/// Manager: time for the client to attach, from the end of the load. Then the slot is free again.
pub const ATTACH: Millis = Millis::from_secs(2);
/// Manager: time for a bitstream's load. Then the slot is bad. With [`ATTACH`] it is below the 35 s of invariant I4.
pub const LOAD: Millis = Millis::from_secs(30);
/// Manager and client: time without a byte, ring activity, or an answered ping of the other side. Then the other side
/// counts as dead.
pub const SILENT: Millis = Millis::from_secs(5);
/// Manager: time without a task after which the broker is told that a lease is idle.
pub const IDLE: Millis = Millis::from_secs(1);
/// Manager: time for a client to give the slot up after a Yield, beyond the longest step.
pub const YIELD_SLACK: Millis = Millis::from_secs(1);
/// Manager: time for the tasks of an ended lease to end. Then the slot is bad.
pub const DRAIN: Millis = Millis::from_secs(30);
/// Manager: the last part of [`DRAIN`], in which the tenant's process is killed and reaped.
pub const REAP: Millis = Millis::from_secs(1);
/// Manager: time without a broker after which groups yield. Runs go on to their end.
pub const ORPHAN: Millis = Millis::from_secs(60);
/// Manager: time between the probes of a bad slot, and for which a bitstream that failed to load is refused.
pub const PROBE: Millis = Millis::from_secs(60);
/// Broker: time for a manager's answer to a Prepare, which is longer than [`LOAD`]. Then the broker closes the connection.
pub const ANSWER: Millis = Millis::from_secs(35);
/// Broker: time for which a waiting job's place is kept without its client.
pub const LOST: Millis = Millis::from_secs(10);
/// Broker: time for which a newly active broker listens and grants nothing.
pub const SETTLE: Millis = Millis::from_secs(2);
