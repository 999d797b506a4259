//! The command `boards`: the devices of a runtime, as `supervise` finds them.

use anyhow::Context as _;
use clap::Args;
use fpga_session::inventory::{BoardDevices, InventoryError, PciAddress};
use fpga_vendor as vendor;
use fpga_vendor::runtime::Runtime;
use serde::{Deserialize, Serialize};
use std::io::Write as _;

const CL_DEVICE_NAME: u32 = 0x102B;

/// Lists the devices of a runtime, one JSON object per line.
#[derive(Debug, Args)]
pub struct BoardsArgs {
    /// The OpenCL runtime: `pocl`, `intel-fpga`, `intel-cpu`, or the path of an ICD.
    #[arg(long, env = "FPGA_RUNTIME", default_value = "pocl")]
    runtime: Runtime,
}

/// A device of a runtime.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDevice {
    /// Index of the device in the runtime's order.
    pub index: usize,
    /// The device's PCI address, if the runtime tells it.
    pub pci: Option<String>,
    /// Name of the device.
    pub name: String,
}

impl BoardsArgs {
    /// Prints the devices; nothing if the runtime has none.
    ///
    /// # Errors
    /// The runtime can't be loaded, or standard output is closed.
    pub fn run(self) -> anyhow::Result<()> {
        let entered = self.runtime.enter()?;
        let devices = match BoardDevices::All.among(&entered.load()?) {
            Err(InventoryError::NoDevice) => Vec::new(),
            devices => devices?,
        };
        let mut out = std::io::stdout().lock();
        for (index, (_, device)) in devices.into_iter().enumerate() {
            let name = vendor::device_info(device, CL_DEVICE_NAME).unwrap_or_default();
            let name = String::from_utf8_lossy(&name).trim_end_matches('\0').to_owned();
            let found = FoundDevice { index, pci: PciAddress::of(device).map(|pci| pci.to_string()), name };
            writeln!(out, "{}", serde_json::to_string(&found)?).context("cannot print the devices")?;
        }
        out.flush().context("cannot print the devices")
    }
}
