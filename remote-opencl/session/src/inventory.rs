//! The platforms and devices of the vendor's runtime, read once. They are sent in each Welcome, and give
//! device ids their meaning.

mod board_devices;
mod probe;
mod usm;

pub use board_devices::{BoardDevices, InvalidBoardDevices, PciAddress};

use crate::device_clock::DeviceClock;
use bytes::Bytes;
use fpga_protocol::segments::STORAGE_ALIGNMENT;
use fpga_protocol::v1;
use fpga_vendor::{self as vendor, DeviceId, LoadError, PlatformId};
use std::sync::{Arc, OnceLock};

/// Longest answer that is forwarded, in bytes.
const MAX_INFO_BYTES: usize = 64 * 1024;

/// `CL_PLATFORM_ICD_SUFFIX_KHR`.
const ICD_SUFFIX: u32 = 0x0920;
/// The suffix of this project's own platforms, which a manager must never serve.
const OWN_SUFFIX: &[u8] = b"FPGA";

/// All parameters of `clGetPlatformInfo`; none of the answers is a handle.
const PLATFORM_PARAMS: &[std::ops::RangeInclusive<u32>] = &[0x0900..=0x0907, ICD_SUFFIX..=ICD_SUFFIX];

/// Parameters of `clGetDeviceInfo`: those of the standard, its extensions and the usual vendors.
const DEVICE_PARAMS: &[std::ops::RangeInclusive<u32>] = &[
    0x1000..=0x1075, // OpenCL 1.0 to 3.0
    0x40A9..=0x40AC, // Intel: simultaneous interoperation, terminate capability
    0x4000..=0x4007, // NVIDIA attributes, which others answer too
    0x4038..=0x4038, // AMD board name
    0x4100..=0x4109, // Intel, ME and planar capabilities
    0x4160..=0x4160, // Intel: device version
];

/// Parameters whose answers are handles of this process, or counts of handles.
const DEVICE_HANDLES: &[u32] = &[
    0x1031, // CL_DEVICE_PLATFORM
    0x1042, // CL_DEVICE_PARENT_DEVICE
    0x1047, // CL_DEVICE_REFERENCE_COUNT
];

/// A device, and the id by which all sessions refer to it.
#[derive(Debug, Clone)]
pub struct Device {
    /// Id of the device in messages, from 1.
    pub id: u64,
    /// The vendor's handle.
    pub vendor: DeviceId,
    /// Index of the device's platform.
    pub platform: usize,
    /// The vendor's clock of the device, which its sub-devices share.
    pub(crate) clock: Arc<DeviceClock>,
}

/// The platforms and devices of a runtime. By default there are none.
#[derive(Debug, Default)]
pub struct Inventory {
    platforms: Vec<v1::Platform>,
    devices: Vec<Device>,
    /// The alignment of buffers in shared memory, for all devices; determined at first use.
    storage_alignment: OnceLock<Option<u64>>,
    /// The devices with unified shared memory; determined at first use.
    usm: OnceLock<Vec<v1::UsmDevice>>,
}

/// The reason why a runtime can't be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// The runtime can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The runtime can't list its platforms.
    #[error("the OpenCL runtime gives no platforms: {0}; check --runtime")]
    Platforms(vendor::ClError),
    /// The runtime has no device.
    #[error("the OpenCL runtime has no device; check --runtime")]
    NoDevice,
    /// The runtime has devices, but not the one that was chosen.
    #[error(
        "the OpenCL runtime has no device {wanted}, but {count} others; `fpga-device-manager boards` lists them"
    )]
    OtherDevices {
        /// The chosen device.
        wanted: BoardDevices,
        /// Number of devices of the runtime.
        count: usize,
    },
}

impl Inventory {
    /// Loads the runtime that the environment names and reads the platforms and devices of the board.
    ///
    /// # Errors
    /// [`InventoryError`], if the runtime can't be loaded, fails, or has no such device.
    pub fn read(board: BoardDevices) -> Result<Self, InventoryError> {
        vendor::load()?;
        let mut inventory = Self::default();
        let mut platforms = vendor::platforms().map_err(InventoryError::Platforms)?;
        platforms.retain(|platform| !is_own(*platform));
        let chosen = board.among(&platforms)?;
        for platform in platforms {
            let devices = chosen.iter().filter(|(of, _)| *of == platform).map(|(_, device)| *device);
            inventory.add(platform, devices);
        }
        Ok(inventory)
    }

    fn add(&mut self, platform: PlatformId, of_board: impl Iterator<Item = DeviceId>) {
        let mut devices = Vec::new();
        for vendor in of_board {
            let id = self.devices.len() as u64 + 1;
            self.devices.push(Device { id, vendor, platform: self.platforms.len(), clock: Arc::default() });
            devices.push(v1::Device { id, info: answers_of(vendor) });
        }
        if !devices.is_empty() {
            let params = PLATFORM_PARAMS.iter().cloned().flatten();
            let info = answers(params, |param| vendor::platform_info(platform, param));
            self.platforms.push(v1::Platform { info, devices });
        }
    }

    /// The platforms, as a Welcome contains them.
    #[must_use]
    pub fn platforms(&self) -> &[v1::Platform] {
        &self.platforms
    }

    /// The alignment in bytes with which the buffers of all devices can lie in shared memory; `None` if they can't.
    #[must_use]
    pub fn storage_alignment(&self) -> Option<u64> {
        let coarsest = || {
            // A board that is reconfigured as a whole has memory of its own.
            if vendor::objects_are_remembered() {
                return None;
            }
            let mut each = self.devices.iter().map(|device| probe::storage_alignment(device.vendor));
            each.try_fold(STORAGE_ALIGNMENT, |coarsest, alignment| Some(coarsest.max(alignment?)))
        };
        *self.storage_alignment.get_or_init(coarsest)
    }

    /// The device with this id.
    #[must_use]
    pub fn device(&self, id: u64) -> Option<Device> {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        self.devices.get(index).cloned()
    }

    /// The name of the first platform.
    #[must_use]
    pub fn platform_name(&self) -> String {
        const NAME: u32 = 0x0902;
        let info =
            self.platforms.first().and_then(|platform| platform.info.iter().find(|info| info.param == NAME));
        info.map(|info| String::from_utf8_lossy(&info.value).trim_end_matches('\0').to_owned())
            .unwrap_or_default()
    }
}

/// Whether the platform is one of this project's own.
fn is_own(platform: PlatformId) -> bool {
    vendor::platform_info(platform, ICD_SUFFIX).is_ok_and(|suffix| suffix.starts_with(OWN_SUFFIX))
}

/// All answers of the vendor about a device that can be forwarded.
#[must_use]
pub fn answers_of(device: DeviceId) -> Vec<v1::Info> {
    let params = DEVICE_PARAMS.iter().cloned().flatten().filter(|param| !DEVICE_HANDLES.contains(param));
    answers(params, |param| vendor::device_info(device, param))
}

fn answers(
    params: impl Iterator<Item = u32>,
    ask: impl Fn(u32) -> vendor::ClResult<Vec<u8>>,
) -> Vec<v1::Info> {
    params
        .filter_map(|param| {
            let value = ask(param).ok().filter(|value| value.len() <= MAX_INFO_BYTES)?;
            Some(v1::Info { param, value: Bytes::from(value) })
        })
        .collect()
}
