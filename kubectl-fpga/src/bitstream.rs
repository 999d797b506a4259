//! `kubectl fpga bitstream`: makes, sends and reads artifacts of bitstreams.

mod interface_arg;
mod pack;
mod push;
mod read;
mod registry_args;
mod variant_arg;

use crate::connection::ConnectArgs;
use crate::output::Table;
use anyhow::Result;
use clap::Subcommand;
use fpga_artifacts::Artifact;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga bitstream pack sobel --variant file=sobel-a10.aocx,vendor=intel,board=a10gx,shell=1.2
  kubectl fpga bitstream push sobel.oci registry.example/team/sobel:1.0 | kubectl apply -f -
  kubectl fpga bitstream inspect registry.example/team/sobel:1.0
  kubectl fpga bitstream verify registry.example/team/sobel:1.0";

/// Arguments of `bitstream`.
#[derive(Debug, clap::Args)]
pub struct BitstreamArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Makes an artifact of files that were built for boards: a folder in the image layout of the OCI.
    #[command(after_help = pack::EXAMPLES)]
    Pack(pack::PackArgs),
    /// Sends an artifact to a registry, and prints the Bitstream to apply.
    #[command(after_help = push::EXAMPLES)]
    Push(push::PushArgs),
    /// Shows what an artifact has. The bitstreams themselves are not read.
    #[command(after_help = read::INSPECT_EXAMPLES)]
    Inspect(read::InspectArgs),
    /// Reads all bitstreams of an artifact, and compares their lengths and digests with what the artifact says.
    #[command(after_help = read::VERIFY_EXAMPLES)]
    Verify(read::VerifyArgs),
}

impl BitstreamArgs {
    /// Runs the subcommand.
    ///
    /// # Errors
    /// The subcommand failed; the message tells what to do about it.
    pub async fn run(self, connect: &ConnectArgs) -> Result<ExitCode> {
        match self.command {
            Command::Pack(args) => args.run(),
            Command::Push(args) => args.run(connect).await,
            Command::Inspect(args) => args.run(connect).await,
            Command::Verify(args) => args.run(connect).await,
        }
    }
}

/// The variants of an artifact for people.
fn table(artifact: &Artifact) -> Table {
    let mut table = Table::new(&["VENDOR", "BOARD", "SHELL", "REGION", "BYTES", "DIGEST"]);
    for variant in &artifact.variants {
        let fields = [&variant.vendor, &variant.board, &variant.shell];
        let numbers =
            [variant.region_size.to_string(), variant.bytes.to_string(), variant.digest.to_string()];
        table.push(fields.into_iter().cloned().chain(numbers).map(Into::into).collect());
    }
    table
}
