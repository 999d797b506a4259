//! A discrete-event simulator of clusters with FPGA boards, and the traces that feed it.
//!
//! What it decides it asks `fpga-core`, as the extender does; what it models itself is time, requests and boards. It
//! moves no bytes and talks to no cluster.

#![forbid(unsafe_code)]

pub mod args;
pub mod azure;
pub mod commands;
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
