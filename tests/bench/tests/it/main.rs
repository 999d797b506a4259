//! The commands of `fpga-bench` that start clusters or a pool, briefly.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod timing;
