//! `kubectl fpga` shows why a pod was placed on its node, what the boards do, and what is wrong with the wiring.
//!
//! The plugin asks every replica of the extender, and of the endpoint picker, since the replicas share nothing: through
//! the API server's proxy to their pods, or at the addresses of `--extender` and `--picker`; what is about boards, functions, Bitstreams and moves it reads
//! from the API server with the user's own rights. It changes nothing in the cluster.
#![forbid(unsafe_code)]

pub mod args;
mod bitstream;
mod bitstreams;
mod boards;
pub mod connection;
mod doctor;
mod explain;
mod functions;
mod moves;
pub mod nodes;
mod objects;
pub mod output;
pub mod part;
mod pool;
pub mod problem;
pub mod replicas;
mod route;
mod top;
mod web;
