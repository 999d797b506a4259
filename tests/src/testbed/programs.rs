//! Paths of our own programs: they lie beside the binary of the test or the demo, in cargo's target folder.

use anyhow::{Result, ensure};
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
    let path = fpga_test_kit::programs::folder().join(name);
    ensure!(path.exists(), "{} is missing. Run `cargo build --workspace`", path.display());
    Ok(path)
}

/// The folder in which `hack/control-plane.sh` puts the control plane's programs: those of `KUBERNETES_VERSION`, if it is set.
#[must_use]
pub fn control_plane() -> PathBuf {
    let version = std::env::var("KUBERNETES_VERSION").unwrap_or_default();
    let separator = if version.is_empty() { "" } else { "-" };
    repository().join(format!("build/control-plane{separator}{version}/bin"))
}

/// The arguments that every collector needs: its node, the address at which it takes requests, and the folder of its
/// checkpoint.
#[must_use]
pub fn collector_args(node: &str, address: &str, checkpoint: &Path) -> [OsString; 6] {
    let texts = ["--node-name", node, "--listen", address, "--checkpoint-dir"].map(OsString::from);
    let [name, node, listen, address, folder] = texts;
    [name, node, listen, address, folder, checkpoint.into()]
}
