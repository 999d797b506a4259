//! The command line; each command has its file in [`crate::commands`].

use crate::commands::{compare, generate, plot, replay_cluster, reproduce, run, scenario, sweep};
use clap::{Parser, Subcommand};

/// Simulates clusters with FPGA boards: with my trace, my boards and these weights, what changes?
#[derive(Debug, Parser)]
#[command(
    name = "fpga-sim",
    version,
    after_help = "Example:\n  fpga-sim scenario placement > scenario.toml\n  fpga-sim run --scenario scenario.toml"
)]
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
    Scenario(scenario::Scenario),
    Sweep(sweep::Sweep),
}

impl Args {
    /// Runs the command.
    ///
    /// # Errors
    /// An error with a message for people.
    pub fn run(&self) -> anyhow::Result<()> {
        match &self.command {
            Command::Compare(command) => command.run(),
            Command::Generate(command) => command.run(),
            Command::Plot(command) => command.run(),
            Command::ReplayCluster(command) => command.run(),
            Command::Reproduce(command) => command.run(),
            Command::Run(command) => command.run(),
            Command::Scenario(command) => command.run(),
            Command::Sweep(command) => command.run(),
        }
    }
}

/// The message of an error and of its causes. A cause that an outer message already contains is left out.
#[must_use]
pub fn explain(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(cause.trim_end()) {
            text.push_str(": ");
            text.push_str(&cause);
        }
    }
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once() {
        let read = |path: &str| crate::scenario::Scenario::read(std::path::Path::new(path), &[]);
        let error = anyhow::Error::from(read("/no/such.toml").unwrap_err());
        let text = explain(&error);
        assert_eq!(text.matches("No such file").count(), 1, "{text}");
        let text = explain(&anyhow::anyhow!("inside").context("outside"));
        assert_eq!(text, "outside: inside");
    }
}
