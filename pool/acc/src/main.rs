//! The program `fpga-acc`: runs an accelerator of the pool over its standard input.
#![forbid(unsafe_code)]

mod cli;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    cli::Args::parse().run()
}
