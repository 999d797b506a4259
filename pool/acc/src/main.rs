//! The program `fpga-acc`: runs an accelerator of the pool over its standard input.
#![forbid(unsafe_code)]

use clap::Parser;
use fpga_acc::cli::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    Args::parse().run()
}
