//! The collector as a process, with reporters, an API server, extender replicas and disks that fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod clock;
mod common;
mod crash;
mod hostile_reporters;
mod publish;
mod rate;
mod service;
mod stream;
