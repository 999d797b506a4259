//! The stream of node states from collectors to extender replicas (design decision 6): what both sides must agree on.
//!
//! Generated types, limits, the shared token, and the client's half of one call. When to send what is the collector's
//! matter, what becomes of it the extender's.
#![forbid(unsafe_code)]

pub mod client;
pub mod codec;
pub mod limits;
pub mod token;

/// Messages and services of `proto/node_stream.proto`.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated; the .proto file has the comments"
)]
pub mod v1 {
    tonic::include_proto!("fpga.node_stream.v1");
}
