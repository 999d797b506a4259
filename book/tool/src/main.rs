//! The program `fpga-book`; the code is in the library.
#![forbid(unsafe_code)]

use clap::Parser;
use fpga_book::args::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpga-book: {error:#}");
            ExitCode::FAILURE
        }
    }
}
