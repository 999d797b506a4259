//! The program of `make picker-load`; see [`fpga_bench::picker_load`].

use anyhow::Context as _;
use clap::Parser as _;
use fpga_bench::picker_load::Args;
use std::process::ExitCode;

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    match runtime.context("can't start the runtime").and_then(|runtime| runtime.block_on(args.run())) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
