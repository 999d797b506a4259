//! `kubectl fpga bitstream inspect` and `verify`, of folders and of registries.

use super::registry_args::RegistryArgs;
use super::table;
use crate::connection::ConnectArgs;
use crate::output::{Colours, Format, print, print_json};
use anyhow::Result;
use fpga_artifacts::{Layout, Packed, Reference, Registry};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// Examples of `inspect` in the output of `--help`.
pub const INSPECT_EXAMPLES: &str = "Examples:
  kubectl fpga bitstream inspect sobel.oci
  kubectl fpga bitstream inspect registry.example/team/sobel:1.0 -o json";

/// Examples of `verify` in the output of `--help`.
pub const VERIFY_EXAMPLES: &str = "Examples:
  kubectl fpga bitstream verify sobel.oci
  kubectl fpga bitstream verify registry.example/team/sobel@sha256:…";

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// A folder of `pack`, or REGISTRY/REPOSITORY:TAG, or REGISTRY/REPOSITORY@DIGEST.
    #[arg(env = "FPGA_BITSTREAM_REFERENCE")]
    artifact: String,
    /// Format of the output.
    #[arg(short, long, env = "FPGA_OUTPUT", value_enum, default_value_t = Format::Table)]
    output: Format,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {
    /// A folder of `pack`, or REGISTRY/REPOSITORY:TAG, or REGISTRY/REPOSITORY@DIGEST.
    #[arg(env = "FPGA_BITSTREAM_REFERENCE")]
    artifact: String,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// An artifact, and where it is.
enum Opened {
    Folder(Layout),
    Registry { client: Box<Registry>, repository: String, packed: Packed },
}

impl InspectArgs {
    /// Prints what the artifact has.
    ///
    /// # Errors
    /// The artifact can't be read, or is none.
    pub async fn run(self, connect: &ConnectArgs) -> Result<ExitCode> {
        let opened = Opened::open(&self.artifact, &self.registry, connect).await?;
        let packed = opened.packed();
        match self.output {
            Format::Json => print_json(&json!({
                "digest": packed.manifest.digest,
                "name": packed.artifact.name,
                "variants": packed.artifact.variants,
                "interface": packed.artifact.interface,
            }))?,
            Format::Table | Format::Wide => print(&format!(
                "accelerator {}, artifact {}\n{}{}",
                packed.artifact.name,
                packed.manifest.digest,
                packed
                    .artifact
                    .interface
                    .as_ref()
                    .map(|interface| format!("{interface}\n"))
                    .unwrap_or_default(),
                table(&packed.artifact).render(Colours::of_stdout()),
            ))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl VerifyArgs {
    /// Reads all bitstreams.
    ///
    /// # Errors
    /// The artifact can't be read, or a bitstream has other bytes than the artifact says.
    pub async fn run(self, connect: &ConnectArgs) -> Result<ExitCode> {
        let opened = Opened::open(&self.artifact, &self.registry, connect).await?;
        match &opened {
            Opened::Folder(layout) => layout.verify()?,
            Opened::Registry { client, repository, packed } => {
                for layer in &packed.manifest.layers {
                    client.blob(repository, layer, &mut tokio::io::sink()).await?;
                }
            }
        }
        let manifest = &opened.packed().manifest;
        let bytes: u64 = manifest.layers.iter().map(|layer| layer.size).sum();
        print(&format!(
            "{} is whole: artifact {} with {} bitstreams of {bytes} bytes together\n",
            self.artifact,
            manifest.digest,
            manifest.layers.len(),
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Opened {
    async fn open(artifact: &str, registry: &RegistryArgs, connect: &ConnectArgs) -> Result<Self> {
        let folder = Path::new(artifact);
        if folder.is_dir() {
            return Ok(Self::Folder(Layout::open(folder)?));
        }
        let reference: Reference = artifact.parse()?;
        let client = registry.registry(&reference, connect)?;
        let packed = client.artifact(&reference).await?;
        Ok(Self::Registry { client: Box::new(client), repository: reference.repository, packed })
    }

    fn packed(&self) -> &Packed {
        match self {
            Self::Folder(layout) => layout.packed(),
            Self::Registry { packed, .. } => packed,
        }
    }
}
