//! `fpga-collector`: one per node.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match fpga_collector::Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpga-collector: {error:#}");
            ExitCode::FAILURE
        }
    }
}
