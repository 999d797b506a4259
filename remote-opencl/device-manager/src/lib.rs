//! The device manager: one per board, it runs remote OpenCL sessions over the board's vendor runtime.
//!
//! Sessions arrive by gRPC; their tasks start as the dispatcher says; the collector of the node hears how long each
//! held a slot. The vendor's OpenCL is reached through the system's ICD loader only, never through our own ICD.

pub mod args;
pub mod build_bitstream;
pub mod catalogue;
pub mod config;
pub mod dispatcher;
pub mod exec;
pub mod humane;
pub mod listen;
pub mod log;
pub mod metrics;
pub mod metrics_server;
pub mod process;
pub mod ready;
pub mod reporting;
pub mod runtime;
pub mod serve;
pub mod shutdown;
pub mod signals;
pub mod store;
pub mod task;
pub mod vendor;
