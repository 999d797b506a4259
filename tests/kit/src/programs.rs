//! The workspace's programs and libraries. `cargo build --workspace` builds them; no test calls cargo.
//!
//! A test binary lies in `target/PROFILE/deps`, and programs and libraries lie in `target/PROFILE`.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The folder with the programs and libraries of this test's profile: `target/debug`, for example.
#[must_use]
pub fn folder() -> PathBuf {
    let own = std::env::current_exe().expect("a process has a program");
    let folder = own.parent().expect("a program lies in a folder");
    let is_of_cargo = folder.ends_with("deps") || folder.ends_with("examples");
    if is_of_cargo { folder.parent().unwrap().to_owned() } else { folder.to_owned() }
}

/// The path of a program or library, for example `fpga-collector` or `libfpga_opencl_icd.so`.
///
/// # Panics
/// The file is missing, or one of its sources is newer.
#[must_use]
pub fn built(name: &str) -> PathBuf {
    let path = folder().join(name);
    let Some(made) = modified(&path) else {
        panic!("{} is missing. Run: cargo build --workspace", path.display())
    };
    if let Some(source) =
        sources(&path).into_iter().find(|source| modified(source).is_some_and(|at| at > made))
    {
        panic!("{} is older than {}. Run: cargo build --workspace", path.display(), source.display());
    }
    path
}

fn modified(path: &Path) -> Option<SystemTime> {
    std::fs::metadata(path).ok()?.modified().ok()
}

/// The sources of a program or library, which cargo lists in a file beside it.
fn sources(path: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    let (_, sources) = list.split_once(": ").unwrap_or_default();
    sources.split_whitespace().map(PathBuf::from).collect()
}
