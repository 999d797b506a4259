//! One file per command of `fpga-sim`: its flags, and how the library's parts are put together for it.

pub mod compare;
pub mod generate;
mod grid;
pub mod plot;
pub mod replay_cluster;
pub mod reproduce;
pub mod run;
pub mod scenario;
pub mod sweep;
