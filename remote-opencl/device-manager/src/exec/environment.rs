//! What the program sees: our ICD alone, and the address of its manager.

use anyhow::{Context as _, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// File name of the library that programs load.
const ICD: &str = "libfpga_opencl_icd.so";

/// Longest path of a folder for a unix socket: a socket's path has 108 bytes with its NUL.
const MAX_FOLDER_BYTES: usize = 80;

/// A private folder with the loader's view of the program; removed at the end.
#[derive(Debug)]
pub struct Environment {
    folder: TempDir,
}

/// The library: the one that was named, or the one beside this binary.
///
/// # Errors
/// If it isn't there.
pub fn find_icd(named: Option<PathBuf>) -> anyhow::Result<PathBuf> {
    let path = match named {
        Some(path) => path,
        None => {
            let own = std::env::current_exe().context("cannot find this binary")?;
            own.parent().unwrap_or(Path::new("/")).join(ICD)
        }
    };
    match path.canonicalize() {
        Ok(path) if path.is_file() => Ok(path),
        _ => bail!(
            "{} is not there: build it with `cargo build -p fpga-icd`, or name it with --icd PATH",
            path.display()
        ),
    }
}

impl Environment {
    /// Makes the folder.
    ///
    /// # Errors
    /// The system's.
    pub fn new(icd: &Path) -> io::Result<Self> {
        let mut base = std::env::temp_dir();
        if base.as_os_str().len() > MAX_FOLDER_BYTES {
            base = PathBuf::from("/tmp");
        }
        let folder = tempfile::Builder::new().prefix("fpga-exec-").tempdir_in(base)?;
        let vendors = vendors(folder.path());
        fs::create_dir(&vendors)?;
        let mut line = icd.as_os_str().to_owned();
        line.push("\n");
        fs::write(vendors.join("fpga.icd"), line.as_encoded_bytes())?;
        Ok(Self { folder })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program with the caller's environment, but our ICD as the only one.
    pub fn command(&self, program: &OsStr, arguments: &[OsString], addresses: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("OCL_ICD_VENDORS", vendors(self.folder()))
            .env("FPGA_DEVICE_MANAGERS", addresses)
            // Another way into Khronos' loader, and another way to a manager.
            .env_remove("OCL_ICD_FILENAMES")
            .env_remove("FPGA_REGISTRY");
        command
    }
}

fn vendors(folder: &Path) -> PathBuf {
    folder.join("vendors")
}
