//! The program `kubectl-fpga`; the code is in the library.
#![forbid(unsafe_code)]

use clap::Parser;
use kubectl_fpga::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("kubectl fpga: {error:#}");
            ExitCode::FAILURE
        }
    }
}
