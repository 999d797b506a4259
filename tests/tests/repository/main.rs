//! The repository against itself: its code map and its documents.

#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "in a test a failure is a panic")]

mod architecture;
mod commands;
mod documents;
mod links;
