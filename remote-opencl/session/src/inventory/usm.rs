//! The devices with unified shared memory.

use super::Inventory;
use crate::governor::Budget;
use crate::segments::Segments;
use fpga_protocol::segments::PAGE_BYTES;
use fpga_protocol::v1;
use fpga_vendor::UsmCapabilities;

impl Inventory {
    /// The devices with unified shared memory, as a Welcome contains them.
    #[must_use]
    pub fn usm(&self) -> &[v1::UsmDevice] {
        self.usm.get_or_init(|| {
            let devices = self.devices.iter().filter_map(|device| {
                let UsmCapabilities { host, device_only, single_device_shared, cross_device_shared } =
                    UsmCapabilities::of(device.vendor)?;
                Some(v1::UsmDevice {
                    device: device.id,
                    host,
                    device_only,
                    single_device_shared,
                    cross_device_shared,
                })
            });
            let devices: Vec<_> = devices.collect();
            // Allocations are buffers in shared memory, too, and not every machine has the addresses.
            let is_possible = !devices.is_empty() && self.storage_alignment().is_some() && can_place();
            if is_possible { devices } else { Vec::new() }
        })
    }

    /// The alignment of allocations in their segment, in bytes; `None` if no device has unified shared memory.
    #[must_use]
    pub fn usm_alignment(&self) -> Option<u64> {
        if self.usm().is_empty() { None } else { self.storage_alignment() }
    }
}

fn can_place() -> bool {
    Segments::new(Budget::default()).create_placed(1, PAGE_BYTES, None).is_ok()
}
