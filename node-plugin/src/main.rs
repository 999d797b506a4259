//! `fpga-node-plugin`, of which one runs on each node with boards.
#![forbid(unsafe_code)]

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match fpga_node_plugin::Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpga-node-plugin: {error:#}");
            ExitCode::FAILURE
        }
    }
}
