//! The broker of the pool (P, Q): device managers lend slots, clients have jobs, and the broker decides which job gets
//! which slot. No byte of a job passes through it.
//!
//! ```text
//!   managers, clients ──gRPC──► service ──commands──► owner ──► state ──► fpga_pool_leases::broker (the protocol)
//!   Kubernetes Lease ─► leadership ──────────────────────┘         └────► policy ──► fpga_cluster::shared_pool
//!   Bitstream objects ─► watch, or a file ─► catalog ────┘
//! ```
//!
//! [`state`] and [`policy`] decide, without I/O; the [`owner`] is the one task that changes them. The broker keeps nothing
//! that managers and clients can't tell again: it has no database.
#![forbid(unsafe_code)]

pub mod answers;
pub mod args;
pub mod catalog;
pub mod connections;
pub mod identity;
pub mod leadership;
pub mod looks;
pub mod metrics;
pub mod options;
pub mod owner;
pub mod policy;
pub mod policy_args;
pub mod probes;
pub mod registrations;
pub mod serve;
pub mod server;
pub mod service;
pub mod state;
pub mod terms;
pub mod tickets;
mod watch;
