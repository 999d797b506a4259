//! The program of `make soak`; see [`fpga_bench::soak`].

use clap::Parser as _;
use fpga_bench::soak::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
