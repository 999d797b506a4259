//! The commands of `fpga-sim`, one file each: flags and execution.

pub mod compare;
pub mod generate;
mod grid;
pub mod plot;
pub mod replay_cluster;
pub mod reproduce;
pub mod run;
pub mod scenario;
pub mod sweep;
