//! The pool of lent slots live, on modelled boards: the real broker, device managers and client library. Only the times
//! of boards and of the network between nodes are modelled.

mod client;
mod fabric;
mod faults;
mod goals;
mod live_model;
mod machines;
mod policy;
mod priority;
mod report;
mod sharing;
mod site;
mod text;

use super::live_model::plan::draw;
use anyhow::Result;
use clap::Subcommand;

/// Shows the pool of lent slots live, on modelled boards.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    LiveModel(live_model::Args),
    Sharing(sharing::Args),
    Goals(goals::Args),
    Faults(faults::Args),
}

impl Args {
    /// Runs the chosen measurement and prints its results.
    ///
    /// # Errors
    /// A prerequisite is missing, or a step fails.
    pub async fn run(self) -> Result<()> {
        match self.command {
            Command::LiveModel(args) => args.run().await,
            Command::Sharing(args) => args.run().await,
            Command::Goals(args) => args.run().await,
            Command::Faults(args) => args.run().await,
        }
    }
}
