//! The error type of this crate: an error code of the OpenCL standard.

pub use fpga_protocol::cl_error::ClError;

/// `Result` with an OpenCL error code as its error.
pub type Result<T, E = ClError> = std::result::Result<T, E>;
