//! The stream of node states from collectors to the replicas of the extender and of the endpoint picker (design
//! decision 6).
//!
//! Here are the generated types, the limits, what a collector proves its identity by, the client's side of one call,
//! and with the feature `server` the port that takes the calls. The collector decides when to send; a
//! [`server::receiver::Receiver`] decides what to do with a state.
#![forbid(unsafe_code)]

pub mod access;
pub mod client;
mod codec;
pub mod limits;
#[cfg(feature = "server")]
pub mod server;

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
