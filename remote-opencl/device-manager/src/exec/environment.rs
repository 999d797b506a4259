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

/// The drop-in library, in a folder of its own beside this binary: nothing else shall be found there.
const DROP_IN: &str = "drop-in/libOpenCL.so.1";

/// A private folder with the loader's view of the program; removed at the end.
#[derive(Debug)]
pub struct Environment {
    folder: TempDir,
    library: Library,
}

/// How the program comes to us.
#[derive(Debug)]
pub enum Library {
    /// By a loader that finds this driver only.
    Icd(PathBuf),
    /// By our libOpenCL.so.1 in this folder.
    DropIn(PathBuf),
}

impl Library {
    /// The driver: the one that was named, or the one beside this binary.
    ///
    /// # Errors
    /// If it isn't there.
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
    /// If it isn't there.
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
    /// The system's.
    pub fn new(library: Library) -> io::Result<Self> {
        let mut base = std::env::temp_dir();
        if base.as_os_str().len() > MAX_FOLDER_BYTES {
            base = PathBuf::from("/tmp");
        }
        let folder = tempfile::Builder::new().prefix("fpga-exec-").tempdir_in(base)?;
        let vendors = vendors(folder.path());
        fs::create_dir(&vendors)?;
        // Without the driver the folder stays empty, and a loader that the program brings along finds nothing.
        if let Library::Icd(icd) = &library {
            let mut line = icd.as_os_str().to_owned();
            line.push("\n");
            fs::write(vendors.join("fpga.icd"), line.as_encoded_bytes())?;
        }
        Ok(Self { folder, library })
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The program with the caller's environment, but with us as the only OpenCL.
    pub fn command(&self, program: &OsStr, arguments: &[OsString], addresses: &str) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env("OCL_ICD_VENDORS", vendors(self.folder()))
            .env("FPGA_DEVICE_MANAGERS", addresses)
            // Another way into Khronos' loader.
            .env_remove("OCL_ICD_FILENAMES");
        if let Library::DropIn(folder) = &self.library {
            let mut folders = folder.as_os_str().to_owned();
            if let Some(others) = std::env::var_os("LD_LIBRARY_PATH").filter(|others| !others.is_empty()) {
                folders.push(":");
                folders.push(others);
            }
            command.env("LD_LIBRARY_PATH", folders);
        }
        // The private manager asks for no proof.
        for variable in ["FPGA_TOKEN", "FPGA_TOKEN_FILE", "FPGA_TLS_CA", "FPGA_TLS_CERT", "FPGA_TLS_KEY"] {
            command.env_remove(variable);
        }
        command
    }
}

fn vendors(folder: &Path) -> PathBuf {
    folder.join("vendors")
}
