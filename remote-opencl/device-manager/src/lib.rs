//! The device manager: one per board, it runs remote OpenCL sessions over the board's vendor runtime.
//!
//! Sessions arrive by gRPC; their tasks start as the dispatcher says; the collector of the node hears how long each
//! held a slot. The vendor's OpenCL is reached through the system's ICD loader only, never through our own ICD.

pub mod catalogue;
pub mod config;
pub mod dispatcher;
pub mod listen;
pub mod metrics;
pub mod reporting;
pub mod shutdown;
pub mod store;
