//! Servers and TLS of this crate, over sockets.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod http;
mod read_access;
mod tls;
