//! The live page in a real browser, headless Chromium: `make test-web`.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests fail by panicking")]

mod at_scale;
mod broker;
mod demo;
mod extender;
mod hostile;
mod keyboard;
mod lost;
mod pages;
mod pool;
mod timing;
mod traces;
