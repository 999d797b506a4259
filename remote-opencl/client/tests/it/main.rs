//! The client against a scripted manager, and against real device managers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test that can't go on shall fail"
)]

mod real_manager;
mod scripted;
mod scripted_manager;
