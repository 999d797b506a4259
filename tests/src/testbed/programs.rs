//! Paths of our own programs: they lie beside the binary of the test or the demo, in cargo's target folder.

use anyhow::{Context as _, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The folder of the repository.
#[must_use]
pub fn repository() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package).to_owned()
}

/// The path of a file that `cargo build --workspace` builds, for example `fpga-collector` or `libfpga_opencl_icd.so`.
///
/// # Errors
/// The file is missing.
pub fn built(name: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("this program's own path is unknown")?;
    let dir = own.parent().context("this program lies in no folder")?;
    // Binaries of tests lie one folder deeper, in deps/.
    let dir = if dir.ends_with("deps") { dir.parent().unwrap_or(dir) } else { dir };
    let path = dir.join(name);
    if !path.exists() {
        bail!("{} is missing. Run `cargo build --workspace`", path.display());
    }
    Ok(path)
}

/// The arguments that every collector needs: its node, the address at which it takes requests, and the folder of its
/// checkpoint.
#[must_use]
pub fn collector_args(node: &str, address: &str, checkpoint: &Path) -> [OsString; 6] {
    let texts = ["--node-name", node, "--listen", address, "--checkpoint-dir"].map(OsString::from);
    let [name, node, listen, address, folder] = texts;
    [name, node, listen, address, folder, checkpoint.into()]
}
