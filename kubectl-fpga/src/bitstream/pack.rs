//! `kubectl fpga bitstream pack`.

use super::interface_arg::InterfaceArg;
use super::table;
use super::variant_arg::VariantArg;
use crate::output::{Colours, print};
use anyhow::{Context as _, Result, bail};
use fpga_artifacts::{Artifact, Layout, MAX_BITSTREAM_BYTES, Packed, Variant, of_file};
use std::path::PathBuf;
use std::process::ExitCode;

/// Examples in the output of `--help`.
pub const EXAMPLES: &str = "Examples:
  kubectl fpga bitstream pack sobel --variant file=sobel-a10.aocx,vendor=intel,board=a10gx,shell=1.2
  kubectl fpga bitstream pack sobel --output build/sobel.oci \\
      --variant file=sobel-a10.aocx,vendor=intel,board=a10gx,shell=1.2,peak=152.5 \\
      --variant file=sobel.xclbin,vendor=xilinx,board=u250,shell=4.1,region-size=2
  kubectl fpga bitstream pack aes --interface aes-256-ctr --variant file=aes.aocx,vendor=intel,board=a10gx,shell=1.2";

/// Arguments of `pack`.
#[derive(Debug, clap::Args)]
pub struct PackArgs {
    /// Name of the accelerator, which pods will write.
    #[arg(env = "FPGA_BITSTREAM_NAME")]
    name: String,
    /// A file and the kind of board that it was built for, for example
    /// file=sobel.aocx,vendor=intel,board=a10gx,shell=1.2; once for each kind.
    #[arg(long = "variant", env = "FPGA_BITSTREAM_VARIANTS", value_name = "KEY=VALUE,…", required = true)]
    variants: Vec<VariantArg>,
    /// What the kernel takes and gives, for jobs of the pool: the name of a shipped accelerator, or a file with the interface
    /// in JSON.
    #[arg(long, env = "FPGA_BITSTREAM_INTERFACE", value_name = "NAME|FILE")]
    interface: Option<InterfaceArg>,
    /// The new folder; by default NAME.oci.
    #[arg(long, env = "FPGA_BITSTREAM_FOLDER", value_name = "FOLDER")]
    output: Option<PathBuf>,
}

impl PackArgs {
    /// Writes the folder.
    ///
    /// # Errors
    /// An argument is wrong, a file can't be read, or the folder can't be written.
    pub fn run(self) -> Result<ExitCode> {
        let Self { name, variants, interface, output } = self;
        let folder = output.unwrap_or_else(|| PathBuf::from(format!("{name}.oci")));
        let (mut packed, mut files) = (Vec::new(), Vec::new());
        for variant in variants {
            let VariantArg { file, vendor, board, shell, region_size, peak } = variant;
            if file.extension().is_some_and(|extension| extension == "cl") {
                bail!(
                    "{} is OpenCL C, which no board loads. Build it for the board first: with the vendor's compiler, or \
                     `fpga-device-manager build-bitstream` for a runtime without boards",
                    file.display()
                );
            }
            let (digest, bytes) = of_file(&file, MAX_BITSTREAM_BYTES)
                .with_context(|| format!("{} can't be read", file.display()))?;
            packed.push(Variant {
                vendor,
                board,
                shell,
                region_size,
                digest,
                bytes,
                peak_requests_per_second: peak,
            });
            files.push((digest, file));
        }
        let interface = interface.map(InterfaceArg::read).transpose()?;
        let artifact = Artifact { name, variants: packed, interface };
        let layout = Layout::write(&folder, Packed::new(&artifact)?, &files)?;
        print(&format!(
            "{} has accelerator {} as artifact {}\n{}",
            folder.display(),
            layout.artifact().name,
            layout.packed().manifest.digest,
            table(layout.artifact()).render(Colours::of_stdout()),
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
