//! The library and the Python package as programs use them, with the real broker and real device managers over PoCL.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod c_programs;
mod header;
#[path = "../../../tests/it/managers.rs"]
mod managers;
mod python;
#[path = "../../../tests/it/real.rs"]
mod real;
