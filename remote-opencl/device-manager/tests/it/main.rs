//! The device manager from outside: as a program, and as a service over a real OpenCL runtime.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod exec;
mod harness;
mod serve;
mod service;
mod supervise;
mod support;
