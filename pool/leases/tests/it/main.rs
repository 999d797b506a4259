//! The state machines of manager, broker and client: explored together, and with hostile peers.
#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is a panic")]

mod exploration;
mod hostile;
