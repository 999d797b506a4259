//! Lent slots (P, Q): the manager lends some slots of its board to the pool. A lent slot is held by one session at a
//! time, which attaches to it by a lease.
//!
//! The protocol is the state machine of `fpga_pool_leases`. [`lender`] is its owner: it has the clock, carries the
//! actions out, and tells the machine what happens. [`slot`] is one lent slot, [`lender::Attachment`] the hold of a
//! session on it. Sessions without a lease never use a lent slot, and know nothing of it.

pub mod broker_stream;
mod gate;
pub mod lender;
mod metrics;
mod processes;
mod slot;

pub use metrics::PoolMetrics;
pub use processes::LeaseProcesses;
