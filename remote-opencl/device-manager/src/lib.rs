//! The device manager: one process per board. It runs remote OpenCL sessions over the vendor's runtime.
//!
//! Sessions arrive by gRPC. The dispatcher decides when their tasks start, and the node's collector gets an event
//! with the time that each task held a slot. The manager reaches the vendor's OpenCL through the system's ICD
//! loader only, never through this project's own ICD.

pub mod args;
mod boards;
mod build_bitstream;
mod config;
mod connections;
mod exec;
mod former;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grpc;
mod handshake;
mod isolation;
mod keepalive;
mod link;
mod listen;
mod log;
mod memory;
mod metrics_server;
mod node_plugin;
mod peer;
mod pool;
mod process;
mod scrape;
mod serve;
mod server;
mod signals;
mod supervise;
mod tenant_args;
mod tokens;
