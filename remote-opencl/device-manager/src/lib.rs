//! The device manager: one process per board. It runs remote OpenCL sessions over the vendor's runtime.
//!
//! Sessions arrive by gRPC. The dispatcher decides when their tasks start, and the node's collector gets an event
//! with the time that each task held a slot. The manager reaches the vendor's OpenCL through the system's ICD
//! loader only, never through this project's own ICD.

pub mod args;
pub mod build_bitstream;
pub mod config;
pub mod connections;
pub mod exec;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grpc;
pub mod handshake;
pub mod isolation;
pub mod keepalive;
pub mod link;
pub mod listen;
pub mod log;
pub mod memory;
pub mod metrics_server;
pub mod peer;
pub mod process;
pub mod scrape;
pub mod serve;
pub mod server;
pub mod signals;
pub mod tenant_args;
pub mod tokens;
