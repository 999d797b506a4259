//! One file per command of `fpga-sim`: its flags, and how the library's parts are put together for it.

pub mod generate;
pub mod run;
