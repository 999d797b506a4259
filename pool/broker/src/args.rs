//! Command line.

use crate::options::{EXAMPLES, ServeArgs};
use anyhow::Result;
use clap::{Parser, Subcommand};

/// The broker of the pool: device managers lend it slots, and jobs get them.
#[derive(Debug, Parser)]
#[command(version, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs a broker.
    Serve(Box<ServeArgs>),
}

impl Args {
    /// Runs the program until a signal comes.
    ///
    /// # Errors
    /// Invalid arguments, or the system's error.
    pub fn run(self) -> Result<()> {
        let Command::Serve(args) = self.command;
        args.log.init()?;
        fpga_net::runtime::run(crate::serve::serve(*args))?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }
}
