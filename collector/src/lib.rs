//! The collector, one per node (S-4): it takes timing events, keeps a sliding window, and publishes the node's state.
//!
//! ```text
//!  device runtimes ── http ──► intake ──► owner (one thread) ──► checkpoint (fsync) ──► acknowledgement
//!                                           │ state: window, ledger, devices
//!                                           ▼
//!                                       publisher ── server-side apply ──► annotation fpga-scheduling.io/node-state
//!                                       streamer ─── gRPC, on change ────► extender replicas
//! ```
//! `fpga-core` decides what an event means; this crate handles files, sockets and the API server. The collector takes
//! and keeps events even while the API server cannot be reached.
#![forbid(unsafe_code)]

mod args;
mod checkpoint;
mod clock;
mod cordons;
mod http;
pub mod intake;
mod metrics;
mod owner;
mod peers;
mod plugin;
mod publish;
mod rate;
mod server;
pub mod state;
mod stream;
mod timeline;

pub use args::Args;
