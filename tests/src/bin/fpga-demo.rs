//! The demo; see [`fpga_tests::demo`].

use clap::Parser as _;
use fpga_tests::demo::Args;
use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    match Args::parse().run().await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
