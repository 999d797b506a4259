//! The plugin as a program, with stand-ins for the kubelet, the API server, the collector, and a registry.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is a panic")]

mod announced_boards;
mod bed;
mod outages;
