//! `kubectl fpga` shows why a pod was placed on its node, what the boards do, and what is wrong with the wiring.
//!
//! The plugin asks every replica of the extender, and of the endpoint picker, since the replicas share nothing: through
//! the API server's proxy to their pods, or at the addresses of `--extender` and `--picker`; what is about boards, functions, Bitstreams and moves it reads
//! from the API server with the user's own rights. Only `cordon`, `uncordon` and `drain` change anything in the cluster.
#![forbid(unsafe_code)]

mod account;
pub mod args;
mod bitstream;
mod bitstreams;
mod boards;
pub mod connection;
mod cordon;
mod doctor;
mod drain;
mod explain;
mod functions;
mod moves;
pub mod nodes;
mod objects;
pub mod output;
pub mod part;
mod pool;
pub mod problem;
pub mod reader;
pub mod replicas;
mod route;
mod top;
mod web;
