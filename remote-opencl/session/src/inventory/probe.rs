//! A probe of how a device's buffers can lie in shared memory.

use crate::governor::Budget;
use crate::segments::Segments;
use fpga_protocol::segments::{PAGE_BYTES, STORAGE_ALIGNMENT};
use fpga_protocol::v1;
use fpga_vendor::{ClResult, Context, DeviceId, Memory, Queue};
use std::fs::File;
use std::os::unix::fs::FileExt as _;

const SIZE: u64 = 16 * PAGE_BYTES;

/// The finest alignment in bytes with which the device works on the same bytes as other mappings of a segment,
/// without map and unmap: other mappings see its stores once the command has completed, and its next command sees
/// theirs. `None` if the device never does.
#[must_use]
pub fn storage_alignment(device: DeviceId) -> Option<u64> {
    let in_place = |offset, length| seen(device, offset, length).ok().flatten().unwrap_or(false);
    // A runtime may copy buffers whose address or size is no multiple of a page or of a cache line.
    let small = || in_place(PAGE_BYTES + STORAGE_ALIGNMENT, 100);
    in_place(PAGE_BYTES, SIZE - PAGE_BYTES).then(|| if small() { STORAGE_ALIGNMENT } else { PAGE_BYTES })
}

fn seen(device: DeviceId, offset: u64, length: u64) -> ClResult<Option<bool>> {
    let mut segments = Segments::new(Budget::default());
    let Ok(fd) = segments.create(1, SIZE, None) else { return Ok(None) };
    let range = v1::SegmentRange { segment: 1, offset, length };
    let Ok(slice) = segments.slice(&range) else { return Ok(None) };
    let other = File::from(fd);
    let context = Context::new(&[device])?;
    let queue = Queue::new(&context, device, 0)?;
    let memory = Memory::in_shared_memory(&context, opencl_sys::CL_MEM_READ_WRITE, slice)?;
    let size = usize::try_from(range.length).unwrap_or(0);

    let filled = queue.fill(&memory, &[0xA5], 0, size, &[])?;
    queue.flush()?;
    filled.event().wait()?;
    let mut bytes = vec![0; size];
    let stores_are_seen =
        other.read_exact_at(&mut bytes, offset).is_ok() && bytes.iter().all(|byte| *byte == 0xA5);

    bytes.fill(0x5A);
    let changed = other.write_all_at(&bytes, offset).is_ok();
    let mut read = queue.read(&memory, 0, size, size, &[])?;
    queue.flush()?;
    read.event().wait()?;
    let sees_changes = changed && read.take_piece(0).is_some_and(|read| read == bytes);
    Ok(Some(stores_are_seen && sees_changes))
}
