//! The command line.

mod arguments;
mod input;
mod interrupt;
mod progress;
mod run;

use clap::{Parser, Subcommand};
use fpga_accelerators::Accelerator;
use std::process::ExitCode;

/// Runs accelerators of the pool: a job gets a slot of some board of the cluster for as long as it takes.
#[derive(Debug, Parser)]
#[command(version, name = "fpga-acc")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Run),
    /// Lists the accelerators that are shipped, with their arguments. The pool's boards may have others.
    List,
}

/// Exit code of an error.
const FAILED: u8 = 1;
/// Exit code if no slot came: within the limit, or because the broker gives none.
const NO_SLOT: u8 = 3;
/// Exit code after Ctrl-C, as of a program that the signal ends.
const INTERRUPTED: u8 = 130;

impl Args {
    /// Does what the command line says.
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Run(run) => match run.run() {
                Ok(()) => ExitCode::SUCCESS,
                Err(failure) => {
                    eprintln!("fpga-acc: {:#}", failure.error);
                    ExitCode::from(failure.code)
                }
            },
            Command::List => {
                for accelerator in Accelerator::ALL {
                    println!("{:22}{}", accelerator.name(), accelerator.interface());
                }
                ExitCode::SUCCESS
            }
        }
    }
}
