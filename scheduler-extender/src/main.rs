//! `fpga-scheduler-extender`: see the library.
#![forbid(unsafe_code)]

use clap::Parser;
use fpga_scheduler_extender::args::Args;
use std::process::ExitCode;

/// A decision over 5,000 nodes takes and gives back 2 MB; the C library's allocator would hand that to the system and
/// ask for it again, call by call.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match Args::parse().run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fpga-scheduler-extender: {error:#}");
            ExitCode::FAILURE
        }
    }
}
