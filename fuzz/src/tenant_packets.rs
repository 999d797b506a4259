//! The packets of a tenant process whose kernels have taken it over.

use fpga_device_manager::fuzzing::{TenantPackets, link_frames, shared};
use fpga_protocol::limits::MAX_MESSAGE_BYTES;

/// Takes `data` as packets on a control socket, one per line: the task of the neighbour keeps running, and the device
/// is free of the process's tasks when the process has ended. Then takes `data` as the bytes of a session's link: no
/// frame is longer than the received bytes.
///
/// # Panics
/// If this does not hold, or there is no OpenCL runtime.
pub fn tenant_packets(data: &[u8]) {
    let packets: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    let heard = shared().and_then(|parts| TenantPackets::hear(&parts, &packets));
    match heard {
        Ok(left) => assert_eq!(left, TenantPackets::OF_NEIGHBOUR),
        Err(error) => panic!("{error}"),
    }
    let (count, longest) = link_frames(data).unwrap_or_else(|error| panic!("{error}"));
    assert!(count <= data.len() && longest <= data.len().min(2 * MAX_MESSAGE_BYTES));
}
