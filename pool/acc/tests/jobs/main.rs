//! Jobs over real device managers with PoCL: results against references, and what happens when parts go away.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../common/mod.rs"]
mod common;
mod fallback;
mod faults;
mod program;
mod results;

use common::cipher::{COUNTER, KEY, aes, encrypted};
