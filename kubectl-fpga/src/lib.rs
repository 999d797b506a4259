//! `kubectl fpga` shows why a pod was placed on its node, what the boards do, and what is wrong with the wiring.
//!
//! The plugin asks every replica of the extender, and of the endpoint picker, since the replicas share nothing: through
//! the API server's proxy to their pods, or at the addresses of `--extender` and `--picker`. It changes nothing in the
//! cluster.
#![forbid(unsafe_code)]

pub mod args;
mod bitstream;
pub mod connection;
mod doctor;
mod explain;
pub mod nodes;
pub mod output;
pub mod part;
pub mod problem;
pub mod replicas;
mod route;
mod top;
