//! The workspace's programs and libraries, for tests of packages that do not depend on them.
//!
//! A test binary lies in `target/PROFILE/deps`; what this crate builds lies in `target/PROFILE`.
#![allow(clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::path::PathBuf;
use std::process::Command;

/// The folder with the programs and libraries of this test's profile: `target/debug`, for example.
///
/// # Panics
/// If this program is not in a folder of cargo's.
#[must_use]
pub fn folder() -> PathBuf {
    let test = std::env::current_exe().expect("a process has a program");
    test.ancestors().nth(2).expect("cargo puts tests into target/PROFILE/deps").to_owned()
}

/// Builds programs of the workspace (`--bin NAME`) or its libraries (`--lib`) in the profile of this test, and returns
/// [`folder`]. They have the features of the whole workspace: what `cargo build --workspace` has built is not built once more.
///
/// # Panics
/// If the targets don't build.
pub fn build(targets: &[&str]) -> PathBuf {
    let folder = folder();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--workspace"]).args(targets);
    cargo.arg("--target-dir").arg(folder.parent().expect("a profile's folder lies in the target folder"));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(describes_the_test) {
            cargo.env_remove(name);
        }
    }
    let status = cargo.status().expect("cargo starts");
    assert!(status.success(), "{targets:?} don't build");
    folder
}

/// Whether cargo has set this variable to describe the package of the test. Build scripts of dependencies ask for such variables
/// (ring's does), so that each package with tests would have these dependencies, and all that uses them, built once more.
fn describes_the_test(variable: &str) -> bool {
    [
        "CARGO_PKG_",
        "CARGO_MANIFEST_",
        "CARGO_BIN_",
        "CARGO_CRATE_NAME",
        "CARGO_PRIMARY_PACKAGE",
        "CARGO_TARGET_TMPDIR",
        "OUT_DIR",
    ]
    .iter()
    .any(|prefix| variable.starts_with(prefix))
}
