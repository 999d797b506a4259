//! The stream of node states from collectors to extender replicas (design decision 6): the parts that both sides
//! share.
//!
//! These are the generated types, the limits, what a collector proves its identity by, and the client's side of one call. The collector
//! decides when to send; the extender decides what to do with a state.
#![forbid(unsafe_code)]

pub mod access;
pub mod client;
mod codec;
pub mod limits;

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
