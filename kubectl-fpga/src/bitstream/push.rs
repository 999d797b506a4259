//! `kubectl fpga bitstream push`.

use super::registry_args::RegistryArgs;
use crate::connection::ConnectArgs;
use crate::output::print;
use anyhow::{Result, bail};
use clap::ValueEnum;
use fpga_artifacts::{Artifact, Layout, Reference, Target};
use fpga_registry_api::{
    AcceleratorInterface, AllowedNamespaces, Bitstream, BitstreamSpec, FromNamespaces, Source, Variant,
};
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga bitstream push sobel.oci registry.example/team/sobel:1.0 | kubectl apply -f -
  kubectl fpga bitstream push sobel.oci registry.example/team/sobel:1.0 --namespace library --allowed-namespaces all > sobel.yaml
  kubectl fpga bitstream push sobel.oci 127.0.0.1:5000/sobel:1.0 --plain-http";

/// Arguments of `push`.
#[derive(Debug, clap::Args)]
pub struct PushArgs {
    /// The folder that `pack` wrote.
    #[arg(env = "FPGA_BITSTREAM_FOLDER")]
    folder: PathBuf,
    /// Where it goes: REGISTRY/REPOSITORY:TAG.
    #[arg(env = "FPGA_BITSTREAM_REFERENCE")]
    reference: Reference,
    /// Namespaces whose pods may use the accelerator, in the Bitstream that is printed.
    #[arg(long, env = "FPGA_BITSTREAM_ALLOWED_NAMESPACES", value_enum, default_value_t = Allowed::Same)]
    allowed_namespaces: Allowed,
    #[command(flatten)]
    registry: RegistryArgs,
}

/// Namespaces whose pods may use the accelerator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Allowed {
    /// The Bitstream's own.
    Same,
    /// Every namespace.
    All,
}

impl PushArgs {
    /// Sends the artifact, and prints the Bitstream.
    ///
    /// # Errors
    /// The folder is wrong, or the registry does not take it.
    pub async fn run(self, connect: &ConnectArgs) -> Result<ExitCode> {
        let Self { folder, reference, allowed_namespaces, registry } = self;
        if let Target::Digest(_) = reference.target {
            bail!("{reference} has a digest, which the artifact has anyway; write a tag, for example :1.0");
        }
        let layout = Layout::open(&folder)?;
        layout.verify()?;
        let packed = layout.packed();
        let client = registry.registry(&reference, connect)?;
        for layer in &packed.manifest.layers {
            eprintln!("sending {} ({} bytes)", layer.digest, layer.size);
            client.push_file(&reference.repository, layer, &layout.blob(&layer.digest)).await?;
        }
        client.push_bytes(&reference.repository, &packed.manifest.config, &packed.config_bytes).await?;
        client.push_manifest(&reference, packed).await?;
        let sent = reference.with_digest(packed.manifest.digest);
        eprintln!("sent {reference} as {sent}");
        let from = match allowed_namespaces {
            Allowed::Same => FromNamespaces::Same,
            Allowed::All => FromNamespaces::All,
        };
        let object = bitstream(layout.artifact(), &sent, from, connect.namespace.clone())?;
        print(&serde_saphyr::to_string(&object)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The Bitstream of an artifact that is in a registry.
fn bitstream(
    artifact: &Artifact,
    reference: &Reference,
    from: FromNamespaces,
    namespace: Option<String>,
) -> Result<Bitstream> {
    let source = Source { oci: Some(reference.to_string()), https: None };
    let variants = artifact.variants.iter().map(|variant| {
        Ok(Variant {
            vendor: variant.vendor.clone(),
            board: variant.board.clone(),
            shell: variant.shell.clone(),
            region_size: variant.region_size.try_into()?,
            digest: variant.digest.to_string(),
            bytes: variant.bytes.try_into()?,
            source: source.clone(),
            peak_requests_per_second: variant.peak_requests_per_second,
        })
    });
    let allowed_namespaces = AllowedNamespaces { from, selector: None };
    let variants = variants.collect::<Result<_>>()?;
    let interface = artifact.interface.as_ref().map(AcceleratorInterface::of).transpose()?;
    let spec = BitstreamSpec { variants, allowed_namespaces, interface };
    let mut object = Bitstream::new(&artifact.name, spec);
    object.metadata.namespace = namespace;
    Ok(object)
}
