//! The program of `make bench`; see [`fpga_tests::bench`].

use clap::Parser as _;
use fpga_tests::bench::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
