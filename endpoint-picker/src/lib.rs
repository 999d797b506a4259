//! The endpoint picker (S-11): chooses for each request of a function the replica whose board has the bitstream. It
//! speaks Envoy's external processing, as the Gateway API Inference Extension's Endpoint Picker Protocol has it, so
//! that Envoy and every gateway that takes an `InferencePool` carry the requests.
//!
//! [`watch`] learns functions and replicas from the API server, [`node_streams`] takes the states of nodes, [`state`] decides, without I/O, by
//! [`fpga_cluster::router`], [`exchange`] is the protocol of one request, without I/O, and [`server`] carries it.
#![forbid(unsafe_code)]

pub mod args;
pub mod envoy_drain;
pub mod envoy_endpoints;
pub mod exchange;
pub mod external_metrics;
pub mod function;
pub mod headers;
pub mod metrics;
pub mod node_streams;
pub mod picker;
pub mod probes;
pub mod routing;
pub mod server;
pub mod service;
pub mod state;
pub mod watch;

/// Messages and the service of `proto/ext_proc.proto`.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated; the .proto file has the comments"
)]
pub mod ext_proc {
    tonic::include_proto!("envoy.service.ext_proc.v3");
}
