//! The OpenCL runtime below the device managers: `RUNTIME=pocl` (default), `intel-fpga` or `intel-cpu`; tests of
//! faults use the emulated board.

use crate::testbed::programs;
use anyhow::{Result, bail};
use std::fmt;
use std::str::FromStr;

/// An OpenCL runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    /// PoCL, from the system's packages.
    Pocl,
    /// Intel's FPGA emulator, from PyPI.
    IntelFpga,
    /// Intel's CPU runtime, from PyPI.
    IntelCpu,
    /// The emulated board over PoCL, which fails when a test asks for it.
    EmulatedBoard,
}

impl Runtime {
    /// The runtime in the variable `RUNTIME`.
    ///
    /// # Errors
    /// The runtime is unknown or not installed.
    pub fn from_env() -> Result<Self> {
        let runtime = match std::env::var("RUNTIME") {
            Ok(name) if !name.is_empty() => name.parse()?,
            _ => Self::Pocl,
        };
        if !runtime.is_installed() {
            bail!("{runtime} is not installed. Run `make setup RUNTIME={runtime}`");
        }
        Ok(runtime)
    }

    /// Whether the runtime is installed.
    #[must_use]
    pub fn is_installed(self) -> bool {
        let intel = programs::repository().join("build/intel-opencl/lib");
        match self {
            Self::Pocl | Self::EmulatedBoard => std::path::Path::new("/etc/OpenCL/vendors/pocl.icd").exists(),
            Self::IntelFpga => intel.join("libintelocl_emu.so").exists(),
            Self::IntelCpu => intel.join("libintelocl.so").exists(),
        }
    }

    /// The value of the label `fpga-scheduling.io/fpga-vendor` on nodes with such boards.
    #[must_use]
    pub fn vendor(self) -> &'static str {
        match self {
            Self::Pocl | Self::EmulatedBoard => "pocl",
            Self::IntelFpga | Self::IntelCpu => "intel",
        }
    }

    /// The runtime as the device manager's `--runtime`.
    ///
    /// # Errors
    /// The emulated board's library is not built.
    pub fn argument(self) -> Result<String> {
        match self {
            Self::EmulatedBoard => Ok(programs::built("libfpga_emulated_board.so")?.display().to_string()),
            other => Ok(other.to_string()),
        }
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pocl => "pocl",
            Self::IntelFpga => "intel-fpga",
            Self::IntelCpu => "intel-cpu",
            Self::EmulatedBoard => "emulated-board",
        })
    }
}

impl FromStr for Runtime {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "pocl" => Ok(Self::Pocl),
            "intel-fpga" => Ok(Self::IntelFpga),
            "intel-cpu" => Ok(Self::IntelCpu),
            other => bail!("RUNTIME={other} is unknown; write pocl, intel-fpga or intel-cpu"),
        }
    }
}
