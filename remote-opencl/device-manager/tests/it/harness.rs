//! A device manager as a child process, and a client that sends the protocol's messages without a library.

// The paths are explicit, so that a benchmark can include this file too.
#[path = "harness/board.rs"]
mod board;
#[path = "harness/broker.rs"]
mod broker;
#[path = "harness/client.rs"]
mod client;
#[path = "harness/manager.rs"]
mod manager;
#[path = "harness/objects.rs"]
mod objects;
#[path = "harness/trace.rs"]
mod trace;
#[path = "harness/wire.rs"]
pub mod wire;

pub use board::Board;
pub use broker::{LendStream, ScriptedBroker};
pub use client::Client;
pub use manager::Manager;
pub use objects::{Ready, after, binaries_result, digest_of};
pub use trace::traced;
pub use wire::{encoded, hello, next, padded, raw, raw_bytes, try_raw};
