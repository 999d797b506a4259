//! A discrete-event simulator of clusters with FPGA boards, and the traces that feed it.
//!
//! All decisions are made by `fpga-core`, the code that the extender runs; the simulator models time, requests and
//! boards. It moves no data and connects to no cluster.

#![forbid(unsafe_code)]

pub mod args;
mod commands;
mod error;
mod figure;
mod outcome;
mod output;
mod parallel;
pub mod placement;
pub mod pool;
mod progress;
pub mod qos;
mod random;
pub mod scenario;
pub mod time;
pub mod trace;
