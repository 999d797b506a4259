//! `fpga-collector`, of which one runs on each node.
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
