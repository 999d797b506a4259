//! The book: its pages, and its chapters from the code.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod book;
mod reference;
