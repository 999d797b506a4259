//! The ring in memory and under a model checker.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod model;
mod ring;
