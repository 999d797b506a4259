//! The lease protocol of the pool: who holds which slot, agreed between device managers, broker, and clients.
//!
//! Each party is a state machine without I/O: [`manager::Manager`] owns the leases of its slots, [`broker::Broker`] asks
//! for leases and offers them, [`client::Job`] uses one. A machine takes an event and the present moment and returns
//! actions; its owner carries the actions out, and calls `tick` at `next_deadline`. Which job gets which slot is an
//! input of the broker.
//!
//! The crate has no clock and no randomness: moments and lease ids are arguments. `README.md` tells the protocol.
#![forbid(unsafe_code)]

pub mod broker;
pub mod client;
#[cfg(feature = "exploration")]
pub mod exploration;
pub mod ids;
pub mod lease;
pub mod manager;
pub mod messages;
pub mod rules;
pub mod timing;
