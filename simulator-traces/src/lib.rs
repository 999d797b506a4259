//! A discrete-event simulator of clusters with FPGA boards, and the traces that feed it.
//!
//! All decisions are made by `fpga-core`, the code that the extender runs; the simulator models time, requests and
//! boards. It moves no data and connects to no cluster.

#![forbid(unsafe_code)]

pub mod args;
pub mod commands;
pub mod error;
pub mod figure;
pub mod outcome;
pub mod parallel;
pub mod placement;
pub mod pool;
pub mod progress;
pub mod qos;
pub mod random;
pub mod scenario;
pub mod time;
pub mod trace;
