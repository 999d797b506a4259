//! The command line; each command has its file in [`crate::commands`].

use crate::commands::{compare, generate, plot, replay_cluster, reproduce, run, sweep};
use clap::{Parser, Subcommand};

/// Asks before hardware: with my trace, my boards and these weights, what changes?
#[derive(Debug, Parser)]
#[command(name = "fpga-sim", version, after_help = "Example:\n  fpga-sim run --scenario scenario.toml")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Compare(compare::Compare),
    Generate(generate::Generate),
    Plot(plot::Plot),
    ReplayCluster(replay_cluster::ReplayCluster),
    Reproduce(reproduce::Reproduce),
    Run(run::Run),
    Sweep(sweep::Sweep),
}

impl Args {
    /// Does what was asked.
    ///
    /// # Errors
    /// What went wrong, for people.
    pub fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Compare(command) => command.run(),
            Command::Generate(command) => command.run(),
            Command::Plot(command) => command.run(),
            Command::ReplayCluster(command) => command.run(),
            Command::Reproduce(command) => command.run(),
            Command::Run(command) => command.run(),
            Command::Sweep(command) => command.run(),
        }
    }
}
