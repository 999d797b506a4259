//! The binary `fpga-device-manager`. All code is in the library.
#![forbid(unsafe_code)]

use clap::Parser as _;
use fpga_device_manager::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    Args::parse().run()
}
