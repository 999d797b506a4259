//! `kubectl fpga`: the program, and its requests to a stand-in for an API server.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod clusters;
mod discovery;
mod registries;
mod top;
