//! What the tests of the program share.

use std::path::{Path, PathBuf};
use std::process::Output;

/// A file that stands for the library that programs load, in tests whose programs load none.
pub fn some_icd(folder: &Path) -> PathBuf {
    let path = folder.join("libsome.so");
    std::fs::write(&path, "").unwrap();
    path
}

pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}
