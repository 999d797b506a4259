//! The pool's client over real device managers with PoCL.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bed;
mod broker;
mod cipher;
mod jobs;
mod managers;
mod pool;
mod real;

use fpga_test_kit::patience;
use std::time::Duration;

/// The limit of each wait for the pool.
fn limit() -> Option<Duration> {
    Some(patience())
}
