//! The simulator: its program, its documents, and its choices beside those of a live extender.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod command_line;
mod documents;
mod extender;
mod replay_cluster;
