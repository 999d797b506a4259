//! The program `fpga-endpoint-picker`; the code is in the library.
#![forbid(unsafe_code)]

use clap::Parser;
use fpga_endpoint_picker::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpga-endpoint-picker: {error:#}");
            ExitCode::FAILURE
        }
    }
}
