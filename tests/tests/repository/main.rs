//! The repository against itself: its modules and its documents.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod circles;
mod commands;
mod links;
