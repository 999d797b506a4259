//! The program `fpga-scheduler-extender`; the code is in the library.
#![forbid(unsafe_code)]

use clap::Parser;
use fpga_scheduler_extender::args::Args;
use std::process::ExitCode;

/// A decision over 5,000 nodes allocates and frees 2 MB. The C library's allocator would return that memory to the
/// system and request it again for every call.
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
