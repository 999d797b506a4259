//! The reporter against servers on the loopback, and as the system sees it.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod reporter;
mod thread;
