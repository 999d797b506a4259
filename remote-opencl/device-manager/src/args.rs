//! The command line: its commands, each with its own arguments, and the exit status of errors.

use crate::boards::BoardsArgs;
use crate::build_bitstream::BuildBitstreamArgs;
use crate::exec::ExecArgs;
use crate::isolation::child::TenantProcessArgs;
use crate::serve::ServeArgs;
use crate::supervise::SuperviseArgs;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Serves remote OpenCL sessions over the OpenCL runtime of one board.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(Box<ServeArgs>),
    Supervise(Box<SuperviseArgs>),
    Boards(BoardsArgs),
    Exec(ExecArgs),
    BuildBitstream(BuildBitstreamArgs),
    #[command(hide = true)]
    TenantProcess(TenantProcessArgs),
}

impl Args {
    /// Runs the command. An error is printed and determines the exit status.
    #[must_use]
    pub fn run(self) -> ExitCode {
        match self.command {
            Command::Serve(args) => finish(args.run().map(|()| ExitCode::SUCCESS), 1),
            Command::Supervise(args) => finish(args.run().map(|()| ExitCode::SUCCESS), 1),
            Command::Boards(args) => finish(args.run().map(|()| ExitCode::SUCCESS), 1),
            Command::BuildBitstream(args) => finish(args.run().map(|()| ExitCode::SUCCESS), 1),
            Command::TenantProcess(args) => finish(args.run().map(|()| ExitCode::SUCCESS), 1),
            // Like env(1) and timeout(1), `exec` has a status of its own that tells its failures from the
            // program's.
            Command::Exec(args) => finish(args.run(), 125),
        }
    }
}

#[expect(clippy::print_stderr, reason = "the program's last word to its user")]
fn finish(result: anyhow::Result<ExitCode>, failure: u8) -> ExitCode {
    result.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(failure)
    })
}
