//! The wire protocol between the remote OpenCL client and the device manager.
//!
//! Generated types, limits, and rules that both sides follow; no I/O.
#![forbid(unsafe_code)]

pub mod cl_error;
pub mod host_pipes;
pub mod images;
pub mod include;
pub mod limits;
pub mod memory_flags;
pub mod segments;
pub mod weight;

/// Messages and services of `proto/remote_opencl.proto`.
#[allow(
    missing_docs,
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated; the .proto file has the comments"
)]
pub mod v1 {
    tonic::include_proto!("fpga.remote.v1");
}
