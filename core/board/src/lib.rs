//! One board: its slots, the order in which its tasks start, the predicted reuse of its bitstreams, and its health.
//!
//! The crate is pure, as [`fpga_core`] is: time is an argument. The device manager and the simulator call the same
//! functions.
#![forbid(unsafe_code)]

pub mod dispatch;
pub mod health;
pub mod reuse;
pub mod slots;
pub mod whole_board;
