//! Decisions over many boards: those that a container gets (B-7), the pool of slots (P), devices by deadline and throughput (Q), both on the same
//! slots, the replica that a request goes to, and moves of functions between nodes.
//!
//! The crate is pure, as [`fpga_board`] is: time is an argument.
#![forbid(unsafe_code)]

pub mod allocation;
pub mod demand;
pub mod moves;
pub mod pool;
pub mod qos;
pub mod rebalance;
pub mod replicas;
pub mod router;
pub mod shared_pool;
pub mod tracked_board;
