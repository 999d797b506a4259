//! `fpga-sim`: see the library.
#![forbid(unsafe_code)]

use clap::Parser;
use fpga_sim::args::{Args, explain};
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpga-sim: {}", explain(&error));
            ExitCode::FAILURE
        }
    }
}
