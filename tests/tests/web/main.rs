//! The live page in a real browser, headless Chromium: `make test-web`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod at_scale;
mod demo;
mod hostile;
mod lost;
mod pages;
mod pool;
mod traces;
