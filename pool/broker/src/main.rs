//! The program `fpga-pool`; the code is in the library.
#![forbid(unsafe_code)]

use clap::Parser;
use fpga_pool::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpga-pool: {error:#}");
            ExitCode::FAILURE
        }
    }
}
