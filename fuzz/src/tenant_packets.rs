//! What a tenant process says that its tenant's kernels have taken over.

use fpga_device_manager::fuzzing::{TenantPackets, link_frames};
use fpga_protocol::limits::MAX_MESSAGE_BYTES;

/// `data` as the packets on a control socket, one a line: the neighbour's task runs on, and what the process had of the device
/// is free when it has gone. And as the bytes of a session's link: no frame is longer than what has come.
///
/// # Panics
/// If that does not hold, or there is no OpenCL runtime.
pub fn tenant_packets(data: &[u8]) {
    let packets: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    match TenantPackets::hear(&packets) {
        Ok(left) => assert_eq!(left, TenantPackets::OF_NEIGHBOUR),
        Err(error) => panic!("{error}"),
    }
    let (count, longest) = link_frames(data).unwrap_or_else(|error| panic!("{error}"));
    assert!(count <= data.len() && longest <= data.len().min(2 * MAX_MESSAGE_BYTES));
}
