//! `kubectl fpga`: why a pod went where it did, what the boards do, and what is wrong with the wiring.
//!
//! It asks the extender's replicas, each of them, for they share nothing: through the API server's proxy to their pods, or
//! at an address that it is given. It changes nothing in the cluster.
#![forbid(unsafe_code)]

pub mod answers;
pub mod args;
pub mod connection;
pub mod doctor;
pub mod explain;
pub mod extender;
pub mod nodes;
pub mod output;
pub mod problem;
pub mod top;
