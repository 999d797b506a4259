//! The collector, one per node (S-4): timing events in, sliding window, node-state annotation out.
//!
//! ```text
//!  device runtimes ── http ──► intake ──► owner (one thread) ──► checkpoint (fsync) ──► acknowledgement
//!                                           │ state: window, ledger, devices
//!                                           ▼
//!                                       publisher ── server-side apply ──► annotation fpga-scheduling.io/node-state
//!                                       streamer ─── gRPC, on change ────► extender replicas
//! ```
//! What an event means is decided in `fpga-core`; here are the file, the socket and the API server. Nothing here needs the API
//! server to be there: events are taken and kept whether or not they can be published.
#![forbid(unsafe_code)]

mod args;
mod checkpoint;
mod clock;
mod http;
pub mod intake;
mod jitter;
mod metrics;
mod owner;
mod peers;
mod publish;
mod rate;
mod server;
pub mod state;
mod stream;
pub mod timeline;

pub use args::Args;
