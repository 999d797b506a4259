//! `fpga-scheduler-extender`: see the library.
#![forbid(unsafe_code)]

use clap::Parser;
use fpga_scheduler_extender::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpga-scheduler-extender: {error:#}");
            ExitCode::FAILURE
        }
    }
}
