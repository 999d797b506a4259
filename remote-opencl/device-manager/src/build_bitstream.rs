//! `build-bitstream`: compiles OpenCL C with the runtime's own compiler into a program binary.
//!
//! For an FPGA the vendor's tools take hours; for the emulated runtimes this command makes a file that host
//! code loads in the same way, with `clCreateProgramWithBinary`.

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use fpga_session::store::digest_of;
use fpga_vendor::runtime::Runtime;
use fpga_vendor::{self as vendor, Context, DeviceId, Program};
use std::ffi::CString;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Builds a bitstream from OpenCL C and prints its digest.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  fpga-device-manager build-bitstream --runtime pocl -o sobel.bitstream sobel.cl"
)]
pub struct BuildBitstreamArgs {
    /// The OpenCL C source.
    #[arg(value_name = "FILE.cl")]
    source: PathBuf,

    /// Where to write the bitstream [default: FILE.bitstream in the current folder].
    #[arg(short, long, value_name = "OUT.bitstream")]
    output: Option<PathBuf>,

    /// The OpenCL runtime whose compiler to use: `pocl`, `intel-fpga`, `intel-cpu`, or the path of an ICD.
    #[arg(long, env = "FPGA_RUNTIME", default_value = "pocl")]
    runtime: Runtime,

    /// Options for the compiler, for example `-DN=64 -cl-fast-relaxed-math`.
    #[arg(long, env = "FPGA_BUILD_OPTIONS", default_value = "", allow_hyphen_values = true)]
    options: String,
}

impl BuildBitstreamArgs {
    /// Compiles the source and writes the binary.
    ///
    /// # Errors
    /// The compiler's log if it refuses the source, or the error of reading or writing a file.
    #[expect(clippy::print_stdout, reason = "the digest is the command's result")]
    pub fn run(self) -> anyhow::Result<()> {
        let Self { source, output, runtime, options } = self;
        let text = std::fs::read(&source).with_context(|| format!("cannot read {}", source.display()))?;
        let output = match output {
            Some(output) => output,
            None => default_output(&source)?,
        };
        let options = CString::new(options).context("--options has a NUL in it")?;
        let device = first_device(&runtime)?;
        let binary = compile(device, &text, &options).with_context(|| format!("{}", source.display()))?;
        write_whole(&output, &binary).with_context(|| format!("cannot write {}", output.display()))?;
        println!("{} {} {} bytes", output.display(), digest_of(&binary), binary.len());
        Ok(())
    }
}

fn default_output(source: &Path) -> anyhow::Result<PathBuf> {
    let name = source.file_name().ok_or_else(|| anyhow!("{} is no file; name one", source.display()))?;
    Ok(Path::new(name).with_extension("bitstream"))
}

fn first_device(runtime: &Runtime) -> anyhow::Result<DeviceId> {
    for platform in runtime.enter()?.load()? {
        if let Some(device) = vendor::devices(platform)?.first() {
            return Ok(*device);
        }
    }
    bail!("the runtime {runtime} has no device")
}

fn compile(device: DeviceId, source: &[u8], options: &std::ffi::CStr) -> anyhow::Result<Vec<u8>> {
    let context = Context::new(&[device]).context("the runtime makes no context")?;
    let program = Program::with_source(&context, source).context("the runtime takes no source")?;
    if let Err(error) = program.build(&[device], options, None) {
        let log = program.build_log(device).unwrap_or_default();
        let log = log.trim();
        bail!(
            "the compiler refuses it ({error})\n{}",
            if log.is_empty() { "(and gives no build log)" } else { log }
        );
    }
    let binary =
        program.binaries().context("the runtime gives no binary")?.into_iter().next().unwrap_or_default();
    if binary.is_empty() {
        bail!("the runtime gives an empty binary");
    }
    Ok(binary)
}

fn write_whole(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    // Only their owner can read temporary files; a bitstream is for everyone who can read the folder.
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    file.as_file().set_permissions(mode)?;
    file.persist(path)?;
    Ok(())
}
