//! The picker, as gateways, Envoys and collectors meet it.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod envoy;
mod gateways;
mod node_streams;
