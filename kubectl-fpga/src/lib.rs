//! `kubectl fpga` shows why a pod was placed on its node, what the boards do, and what is wrong with the wiring.
//!
//! The plugin asks every replica of the extender, since the replicas share nothing: through the API server's proxy to
//! their pods, or at the addresses of `--extender`. It changes nothing in the cluster.
#![forbid(unsafe_code)]

pub mod args;
mod bitstream;
pub mod connection;
mod doctor;
mod explain;
pub mod extender;
pub mod nodes;
pub mod output;
pub mod problem;
mod top;
