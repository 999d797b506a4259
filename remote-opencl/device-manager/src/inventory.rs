//! The platforms and devices of the vendor's runtime, read once: what a Welcome tells, and what device ids mean.

use crate::segments::works_in_shared_memory;
use crate::vendor::{self, DeviceId, LoadError, PlatformId};
use bytes::Bytes;
use fpga_protocol::v1;
use std::sync::OnceLock;

/// Answers longer than this are not forwarded.
const MAX_INFO_BYTES: usize = 64 * 1024;

/// `CL_PLATFORM_ICD_SUFFIX_KHR`.
const ICD_SUFFIX: u32 = 0x0920;
/// The suffix of our own platforms, which a manager must never serve.
const OWN_SUFFIX: &[u8] = b"FPGA";

/// All parameters of `clGetPlatformInfo`; none is a handle.
const PLATFORM_PARAMS: &[std::ops::RangeInclusive<u32>] = &[0x0900..=0x0907, ICD_SUFFIX..=ICD_SUFFIX];

/// Parameters of `clGetDeviceInfo`: the standard's, its extensions' and those of the usual vendors.
const DEVICE_PARAMS: &[std::ops::RangeInclusive<u32>] = &[
    0x1000..=0x1075, // OpenCL 1.0 to 3.0
    0x40A9..=0x40AC, // Intel: simultaneous interoperation, terminate capability
    0x4000..=0x4007, // NVIDIA attributes, which others answer too
    0x4038..=0x4038, // AMD board name
    0x4100..=0x4109, // Intel, ME and planar capabilities
    0x4160..=0x4160, // Intel: device version
];

/// Answers that are handles of this process, or counts of them.
const DEVICE_HANDLES: &[u32] = &[
    0x1031, // CL_DEVICE_PLATFORM
    0x1042, // CL_DEVICE_PARENT_DEVICE
    0x1047, // CL_DEVICE_REFERENCE_COUNT
];

/// A device and the id that all sessions know it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Its id in messages, from 1.
    pub id: u64,
    /// The vendor's.
    pub vendor: DeviceId,
    /// Index of its platform.
    pub platform: usize,
}

/// What the runtime has.
#[derive(Debug)]
pub struct Inventory {
    platforms: Vec<v1::Platform>,
    devices: Vec<Device>,
    /// Whether the buffers of all of them can lie in shared memory; found out at first use.
    in_shared_memory: OnceLock<bool>,
}

/// Why a runtime can't be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InventoryError {
    /// It can't be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It fails.
    #[error("the OpenCL runtime gives no platforms: {0}; check --runtime")]
    Platforms(vendor::ClError),
    /// It has nothing.
    #[error("the OpenCL runtime has no device; check --runtime")]
    NoDevice,
}

impl Inventory {
    /// Loads the runtime that the environment names and asks it everything.
    ///
    /// # Errors
    /// [`InventoryError`].
    pub fn read() -> Result<Self, InventoryError> {
        vendor::load()?;
        let mut inventory =
            Self { platforms: Vec::new(), devices: Vec::new(), in_shared_memory: OnceLock::new() };
        for platform in vendor::platforms().map_err(InventoryError::Platforms)? {
            inventory.add(platform);
        }
        if inventory.devices.is_empty() { Err(InventoryError::NoDevice) } else { Ok(inventory) }
    }

    fn add(&mut self, platform: PlatformId) {
        if vendor::platform_info(platform, ICD_SUFFIX).is_ok_and(|suffix| suffix.starts_with(OWN_SUFFIX)) {
            return;
        }
        let mut devices = Vec::new();
        for vendor in vendor::devices(platform).unwrap_or_default() {
            let id = self.devices.len() as u64 + 1;
            self.devices.push(Device { id, vendor, platform: self.platforms.len() });
            devices.push(v1::Device { id, info: answers_of(vendor) });
        }
        if !devices.is_empty() {
            let params = PLATFORM_PARAMS.iter().cloned().flatten();
            let info = answers(params, |param| vendor::platform_info(platform, param));
            self.platforms.push(v1::Platform { info, devices });
        }
    }

    /// What a Welcome tells.
    #[must_use]
    pub fn platforms(&self) -> &[v1::Platform] {
        &self.platforms
    }

    /// Whether the buffers of all devices can lie in shared memory.
    #[must_use]
    pub fn works_in_shared_memory(&self) -> bool {
        // A board that is loaded as a whole has memory of its own.
        let all = || {
            !vendor::objects_are_remembered()
                && self.devices.iter().all(|device| works_in_shared_memory(device.vendor))
        };
        *self.in_shared_memory.get_or_init(all)
    }

    /// The device of that id.
    #[must_use]
    pub fn device(&self, id: u64) -> Option<Device> {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        self.devices.get(index).copied()
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

/// All that the vendor tells of a device.
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
