//! The picker's port, asked as gateways ask and as nobody should.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod calls;
mod hostile;
mod modes;
mod port;
mod protocol;
mod served;
