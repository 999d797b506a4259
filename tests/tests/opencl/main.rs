//! OpenCL programs without a control plane: `make test-opencl`.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod other_c_libraries;
mod programs;
mod rust_host;
