//! The program's environment: our ICD alone, and the address of its manager.

use anyhow::{Context as _, bail};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// File name of the library that programs load.
const ICD: &str = "libfpga_opencl_icd.so";

/// Longest path of a folder for a unix socket, in bytes: the path of a socket has at most 108 bytes with its
/// NUL.
const MAX_FOLDER_BYTES: usize = 80;

/// The drop-in library, relative to the folder of this binary. Its folder contains no other library, since it
/// becomes part of the program's library path.
const DROP_IN: &str = "drop-in/libOpenCL.so.1";

/// A private folder with the loader's configuration for the program; dropping the value removes it.
#[derive(Debug)]
pub struct Environment {
    folder: TempDir,
    library: Library,
}

/// How the program loads the library.
#[derive(Debug)]
pub enum Library {
    /// Through a loader that finds this driver only.
    Icd(PathBuf),
    /// As the libOpenCL.so.1 in this folder.
    DropIn(PathBuf),
}

impl Library {
    /// The driver `named`, or the one beside this binary.
    ///
    /// # Errors
    /// The file does not exist.
    pub fn icd(named: Option<PathBuf>) -> anyhow::Result<Self> {
        let path = match named {
            Some(path) => path,
            None => beside(ICD)?,
        };
        match path.canonicalize() {
            Ok(path) if path.is_file() => Ok(Self::Icd(path)),
            _ => bail!(
                "{} is not there: build it with `cargo build -p fpga-opencl-icd`, or name it with --icd PATH",
                path.display()
            ),
        }
    }

    /// The drop-in library beside this binary.
    ///
    /// # Errors
    /// The file does not exist.
    pub fn drop_in() -> anyhow::Result<Self> {
        let path = beside(DROP_IN)?;
        match (path.is_file(), path.parent()) {
            (true, Some(folder)) => Ok(Self::DropIn(folder.to_owned())),
            _ => bail!(
                "{} is not there: build it with `cargo build --release -p fpga-opencl-drop-in` and \
                 `make -C remote-opencl/drop-in`",
                path.display()
            ),
        }
    }
}

fn beside(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find this binary")?;
    Ok(own.parent().unwrap_or(Path::new("/")).join(name))
}

impl Environment {
    /// Makes the folder.
    ///
    /// # Errors
    /// The folder or a file in it can't be made.
    pub fn new(library: Library) -> io::Result<Self> {
        let mut base = std::env::temp_dir();
        if base.as_os_str().len() > MAX_FOLDER_BYTES {
            base = PathBuf::from("/tmp");
        }
        let folder = tempfile::Builder::new().prefix("fpga-exec-").tempdir_in(base)?;
        let vendors = vendors(folder.path());
        fs::create_dir(&vendors)?;
        // Without an ICD the folder stays empty, and a loader that the program brings along finds no driver.
        if let Library::Icd(icd) = &library {
            let mut line = icd.as_os_str().to_owned();
            line.push("\n");
            fs::write(vendors.join("fpga.icd"), line.as_encoded_bytes())?;
        }
        Ok(Self { folder, library })
    }

    /// Path of the folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program's command with the caller's environment, in which our library is the only OpenCL.
    pub fn command(&self, program: &OsStr, arguments: &[OsString], addresses: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("OCL_ICD_VENDORS", vendors(self.folder()))
            .env("FPGA_DEVICE_MANAGERS", addresses)
            // Khronos' loader also takes drivers from this variable.
            .env_remove("OCL_ICD_FILENAMES");
        if let Library::DropIn(folder) = &self.library {
            let mut folders = folder.as_os_str().to_owned();
            if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
                folders.push(":");
                folders.push(others);
            }
            command.env("LD_LIBRARY_PATH", folders);
        }
        // The private manager requires no token and no certificate, and is the program's only one.
        for variable in [
            "FPGA_CLAIM_DIR",
            "FPGA_TOKEN",
            "FPGA_TOKEN_FILE",
            "FPGA_TLS_CA",
            "FPGA_TLS_CERT",
            "FPGA_TLS_KEY",
        ] {
            command.env_remove(variable);
        }
        command
    }
}

fn vendors(folder: &Path) -> PathBuf {
    folder.join("vendors")
}
