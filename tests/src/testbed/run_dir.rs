//! The folder of a test bed's run: sockets, data, logs. It is removed at the end. After a failure it is kept, and its
//! path is printed.

use anyhow::{Context as _, Result};
use std::path::{Path, PathBuf};

/// A temporary folder with a short path, because paths of unix sockets are limited to 107 bytes.
#[derive(Debug)]
pub struct RunDir {
    dir: Option<tempfile::TempDir>,
    path: PathBuf,
}

impl RunDir {
    /// Creates the folder in the system's folder for temporary files.
    ///
    /// # Errors
    /// The folder can't be created.
    pub fn new() -> Result<Self> {
        let dir =
            tempfile::Builder::new().prefix("fpga-").tempdir().context("can't make a temporary folder")?;
        let path = dir.path().to_owned();
        std::fs::create_dir(path.join("logs")).context("can't make the folder for logs")?;
        Ok(Self { dir: Some(dir), path })
    }

    /// Path of the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Path of the log of the named program.
    #[must_use]
    pub fn log(&self, name: &str) -> PathBuf {
        self.path.join("logs").join(format!("{name}.log"))
    }

    /// Keeps the folder after the end.
    pub fn keep(&mut self) {
        if let Some(dir) = self.dir.take() {
            let _ = dir.keep();
        }
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        let asked = std::env::var_os("FPGA_TESTBED_KEEP").is_some();
        if self.dir.is_some() && (asked || std::thread::panicking()) {
            self.keep();
            eprintln!("The test bed's logs and data are kept in {}", self.path.display());
        }
    }
}
