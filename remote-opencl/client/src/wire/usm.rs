//! Unified shared memory as the Welcome describes it, as answers about devices.

use crate::cl;
use bytes::Bytes;
use fpga_protocol::v1;

/// Whether this process and the manager can map the same memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SharedMemory {
    Yes,
    No,
}

/// Adds the answers about unified shared memory to the devices. Without memory in common only memory of devices is left.
pub(crate) fn describe(platforms: &mut [v1::Platform], usm: &[v1::UsmDevice], memory: SharedMemory) {
    let devices = platforms.iter_mut().flat_map(|platform| &mut platform.devices);
    for device in devices {
        let Some(usm) = usm.iter().find(|usm| usm.device == device.id) else { continue };
        let of_both = |value: u64| if memory == SharedMemory::Yes { value } else { 0 };
        let answers = [
            (cl::DEVICE_HOST_MEM_CAPABILITIES_INTEL, of_both(usm.host)),
            (cl::DEVICE_DEVICE_MEM_CAPABILITIES_INTEL, usm.device_only),
            (cl::DEVICE_SINGLE_DEVICE_SHARED_MEM_CAPABILITIES_INTEL, of_both(usm.single_device_shared)),
            (cl::DEVICE_CROSS_DEVICE_SHARED_MEM_CAPABILITIES_INTEL, of_both(usm.cross_device_shared)),
            // The manager can't use memory that the program has from elsewhere.
            (cl::DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL, 0),
        ];
        let info = answers
            .map(|(param, value)| v1::Info { param, value: Bytes::copy_from_slice(&value.to_ne_bytes()) });
        device.info.extend(info);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(memory: SharedMemory) -> Vec<v1::Info> {
        let device = v1::Device { id: 1, info: Vec::new() };
        let other = v1::Device { id: 2, info: Vec::new() };
        let mut platforms = [v1::Platform { info: Vec::new(), devices: vec![device, other] }];
        let usm = v1::UsmDevice { device: 1, host: 15, device_only: 3, ..v1::UsmDevice::default() };
        describe(&mut platforms, &[usm], memory);
        let [platform] = platforms;
        let [device, other] = platform.devices.try_into().unwrap();
        assert!(other.info.is_empty());
        device.info
    }

    #[test]
    fn memory_of_the_host_needs_memory_in_common_and_system_memory_is_never_there() {
        let answer = |memory, param| {
            let info = described(memory).into_iter().find(|info| info.param == param).unwrap();
            u64::from_ne_bytes(info.value.as_ref().try_into().unwrap())
        };
        for (memory, host) in [(SharedMemory::Yes, 15), (SharedMemory::No, 0)] {
            assert_eq!(answer(memory, cl::DEVICE_HOST_MEM_CAPABILITIES_INTEL), host);
            assert_eq!(answer(memory, cl::DEVICE_DEVICE_MEM_CAPABILITIES_INTEL), 3);
            assert_eq!(answer(memory, cl::DEVICE_SHARED_SYSTEM_MEM_CAPABILITIES_INTEL), 0);
        }
    }
}
