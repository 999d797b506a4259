//! Command line.

use crate::bitstream::BitstreamArgs;
use crate::bitstreams::BitstreamsArgs;
use crate::boards::BoardsArgs;
use crate::connection::ConnectArgs;
use crate::cordon::{CordonArgs, UncordonArgs};
use crate::doctor::DoctorArgs;
use crate::drain::DrainArgs;
use crate::explain::ExplainArgs;
use crate::functions::FunctionsArgs;
use crate::moves::MovesArgs;
use crate::nodes::NodesArgs;
use crate::pool::PoolArgs;
use crate::route::RouteArgs;
use crate::top::TopArgs;
use crate::web::WebArgs;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

const EXAMPLES: &str = "Examples:
  kubectl fpga web                       # a live page of all of it
  kubectl fpga nodes                     # what every board does
  kubectl fpga top --watch               # the busiest ones, every two seconds
  kubectl fpga explain default/sobel-7   # why the pod went where it did
  kubectl fpga route default/sobel       # where the function's requests went, and why
  kubectl fpga boards                    # who has which board
  kubectl fpga moves                     # which pods were moved, and why
  kubectl fpga pool jobs                 # which jobs of the pool wait, and why
  kubectl fpga drain n1/dm0              # takes a board out of rotation, and its pods off it
  kubectl fpga doctor                    # what is wrong, and how to mend it
Put the program `kubectl-fpga` into a folder of your PATH, and kubectl finds it.";

/// Shows why a pod was placed on its node, what the FPGA boards do, and what is wrong with the wiring.
#[derive(Debug, Parser)]
#[command(name = "kubectl-fpga", bin_name = "kubectl fpga", version, after_help = EXAMPLES)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connect: ConnectArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Why a pod was placed on its node: each signal with weight, source and age, and how far other plugins could
    /// outvote it.
    #[command(after_help = crate::explain::EXAMPLES)]
    Explain(ExplainArgs),
    /// The nodes with boards as the extender sees them.
    #[command(after_help = crate::nodes::EXAMPLES)]
    Nodes(NodesArgs),
    /// Where the last requests of a function went, and why: what the endpoint picker knew of each replica's board.
    #[command(after_help = crate::route::EXAMPLES)]
    Route(RouteArgs),
    /// The busiest nodes or devices, or the replicas of functions with the most requests in flight.
    #[command(after_help = crate::top::EXAMPLES)]
    Top(TopArgs),
    /// A live page in the browser: what every board runs and for whom, who waits, and why pods went where they are.
    #[command(after_help = crate::web::EXAMPLES)]
    Web(WebArgs),
    /// Every board with the pods that have it.
    #[command(after_help = crate::boards::EXAMPLES)]
    Boards(BoardsArgs),
    /// The workloads whose pods have boards, or wait for them.
    #[command(after_help = crate::functions::EXAMPLES)]
    Functions(FunctionsArgs),
    /// The Bitstreams, where they are valid and resident, and how many pods use them.
    #[command(after_help = crate::bitstreams::EXAMPLES)]
    Bitstreams(BitstreamsArgs),
    /// Which pods were moved off their node, or had better be, and why.
    #[command(after_help = crate::moves::EXAMPLES)]
    Moves(MovesArgs),
    /// The slots that boards lend to the pool, who has them, and which jobs wait, and why.
    #[command(after_help = crate::pool::EXAMPLES)]
    Pool(PoolArgs),
    /// Takes boards out of rotation: they keep their pods and get no new ones.
    #[command(after_help = crate::cordon::CORDON_EXAMPLES)]
    Cordon(CordonArgs),
    /// Puts boards back into rotation.
    #[command(after_help = crate::cordon::UNCORDON_EXAMPLES)]
    Uncordon(UncordonArgs),
    /// Takes a board out of rotation and evicts the pods that have it.
    #[command(after_help = crate::drain::EXAMPLES)]
    Drain(DrainArgs),
    /// Makes, sends and reads artifacts of bitstreams.
    #[command(after_help = crate::bitstream::EXAMPLES)]
    Bitstream(BitstreamArgs),
    /// Checks for all known faults, and tells how to mend them.
    #[command(after_help = crate::doctor::EXAMPLES)]
    Doctor(DoctorArgs),
}

impl Args {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The subcommand failed; the message tells what to do about it.
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let Self { command, connect } = self;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            match command {
                Command::Explain(args) => args.run(&connect).await,
                Command::Nodes(args) => args.run(&connect).await,
                Command::Route(args) => args.run(&connect).await,
                Command::Top(args) => args.run(&connect).await,
                Command::Web(args) => args.run(&connect).await,
                Command::Boards(args) => args.run(&connect).await,
                Command::Functions(args) => args.run(&connect).await,
                Command::Bitstreams(args) => args.run(&connect).await,
                Command::Moves(args) => args.run(&connect).await,
                Command::Pool(args) => args.run(&connect).await,
                Command::Cordon(args) => args.run(&connect).await,
                Command::Uncordon(args) => args.run(&connect).await,
                Command::Drain(args) => args.run(&connect).await,
                Command::Bitstream(args) => args.run(&connect).await,
                Command::Doctor(args) => args.run(&connect).await,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent_and_every_help_has_an_example() {
        let mut command = Args::command();
        command.clone().debug_assert();
        for subcommand in [
            "explain",
            "nodes",
            "route",
            "top",
            "web",
            "doctor",
            "bitstream",
            "bitstreams",
            "boards",
            "cordon",
            "uncordon",
            "drain",
            "functions",
            "moves",
            "pool",
        ] {
            let help = command.find_subcommand_mut(subcommand).unwrap().render_long_help().to_string();
            assert!(help.contains("Examples:") && help.contains("kubectl fpga"), "{help}");
        }
        let bitstream = command.find_subcommand_mut("bitstream").unwrap();
        for subcommand in ["pack", "push", "inspect", "verify"] {
            let help = bitstream.find_subcommand_mut(subcommand).unwrap().render_long_help().to_string();
            assert!(help.contains("Examples:") && help.contains("kubectl fpga bitstream"), "{help}");
        }
    }
}
