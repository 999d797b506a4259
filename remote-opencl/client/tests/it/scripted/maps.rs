//! Maps: stable pointers, fetched content, and content that is written back.

use super::{Setup, target};
use fpga_client::cl::{self, MAP_READ, MAP_WRITE, MAP_WRITE_INVALIDATE_REGION};
use fpga_client::{Buffer, ClError, Initial, Operation};
use std::sync::Arc;

/// The bytes at a mapped address.
fn at<'a>(address: usize, len: usize) -> &'a mut [u8] {
    // SAFETY: the tests access only regions that they have mapped and whose map event has completed.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, len) }
}

fn contents(setup: &Setup, buffer: &Arc<Buffer>) -> Vec<u8> {
    let mut result = vec![0; buffer.size()];
    let read = Operation::Read { buffer, offset: 0, target: target(&mut result) };
    setup.queue.enqueue(read, &[]).unwrap().wait().unwrap();
    result
}

#[test]
fn what_is_written_to_a_map_is_in_the_buffer_after_the_unmap() {
    let setup = Setup::new();
    let buffer = setup.buffer(100);
    let mapped = setup.queue.map(&buffer, MAP_WRITE, 10, 20, &[]).unwrap();
    mapped.event.wait().unwrap();
    assert_eq!(mapped.event.command_type(), cl::COMMAND_MAP_BUFFER);
    assert_eq!(buffer.map_count(), 1);
    at(mapped.address, 20).fill(9);
    let unmap = setup.queue.unmap(&buffer, mapped.address, &[]).unwrap();
    assert_eq!(unmap.command_type(), cl::COMMAND_UNMAP_MEM_OBJECT);
    assert_eq!(buffer.map_count(), 0);
    let bytes = contents(&setup, &buffer);
    assert_eq!((bytes[9], bytes[10], bytes[29], bytes[30]), (0, 9, 9, 0));
    assert_eq!(setup.queue.unmap(&buffer, mapped.address, &[]).unwrap_err(), ClError::INVALID_VALUE);
}

#[test]
fn overlapping_maps_have_one_memory() {
    let setup = Setup::new();
    let buffer = setup.buffer(8192);
    let whole = setup.queue.map(&buffer, MAP_READ, 0, 8192, &[]).unwrap();
    let part = setup.queue.map(&buffer, MAP_READ, 100, 50, &[]).unwrap();
    assert_eq!(part.address, whole.address + 100);
    assert_eq!(whole.address % 4096, 0);
    part.event.wait().unwrap();
    setup.queue.unmap(&buffer, whole.address, &[]).unwrap();
    setup.queue.unmap(&buffer, part.address, &[]).unwrap();
    let again = setup.queue.map(&buffer, MAP_READ, 0, 1, &[]).unwrap();
    assert_eq!(again.address, whole.address);
    again.event.wait().unwrap();
}

#[test]
fn a_map_of_memory_that_the_application_gave_points_there() {
    let setup = Setup::new();
    let mut memory = vec![5; 64];
    let flags = cl::MEM_USE_HOST_PTR;
    let buffer = Buffer::new(&setup.context, flags, 64, Initial::Use(target(&mut memory))).unwrap();
    let fill = Operation::Fill { buffer: &buffer, pattern: &[6], offset: 0, size: 64 };
    setup.queue.enqueue(fill, &[]).unwrap();
    let mapped = setup.queue.map(&buffer, MAP_READ, 8, 8, &[]).unwrap();
    mapped.event.wait().unwrap();
    assert_eq!(mapped.address, buffer.host_address() + 8);
    assert_eq!(at(mapped.address, 8), [6; 8]);
    setup.queue.unmap(&buffer, mapped.address, &[]).unwrap().wait().unwrap();
    assert_eq!((memory[7], memory[8]), (5, 6));
}

#[test]
fn content_that_is_not_wanted_is_not_fetched() {
    let setup = Setup::new();
    let buffer = setup.buffer(1 << 20);
    let mapped = setup.queue.map(&buffer, MAP_WRITE_INVALIDATE_REGION, 0, 1 << 20, &[]).unwrap();
    assert_eq!(mapped.event.status(), 0);
    assert!(setup.manager.script().commands.lock().unwrap().is_empty());
    at(mapped.address, 1 << 20).fill(3);
    setup.queue.unmap(&buffer, mapped.address, &[]).unwrap();
    assert!(contents(&setup, &buffer) == vec![3; 1 << 20]);
}

#[test]
fn a_map_that_overwrites_still_comes_after_what_was_enqueued_before() {
    let setup = Setup::new();
    let buffer = setup.buffer(16);
    let user = fpga_client::Event::user(&setup.context).unwrap();
    setup.queue.enqueue(Operation::Marker, &[Arc::clone(&user)]).unwrap();
    let mapped = setup.queue.map(&buffer, MAP_WRITE_INVALIDATE_REGION, 0, 16, &[]).unwrap();
    assert!(mapped.event.status() > 0);
    user.set_user_status(0).unwrap();
    mapped.event.wait().unwrap();
}

#[test]
fn maps_of_a_sub_buffer_are_in_its_parents_memory() {
    let setup = Setup::new();
    let buffer = setup.buffer(1024);
    let sub = Buffer::sub(&buffer, 0, 128, 128).unwrap();
    let whole = setup.queue.map(&buffer, MAP_READ, 0, 1024, &[]).unwrap();
    let part = setup.queue.map(&sub, MAP_READ, 4, 4, &[]).unwrap();
    assert_eq!(part.address, whole.address + 132);
    assert_eq!((buffer.map_count(), sub.map_count()), (1, 1));
    setup.queue.unmap(&sub, part.address, &[]).unwrap();
    setup.queue.unmap(&buffer, whole.address, &[]).unwrap().wait().unwrap();
}

#[test]
fn host_access_flags_are_kept() {
    let setup = Setup::new();
    let new = |flags| Buffer::new(&setup.context, flags, 16, Initial::Nothing).unwrap();
    let map = |buffer: &Arc<Buffer>, flags| setup.queue.map(buffer, flags, 0, 16, &[]).map(|_| ());
    let refused = Err(ClError::INVALID_OPERATION);
    assert_eq!(map(&new(cl::MEM_HOST_NO_ACCESS), MAP_READ), refused);
    assert_eq!(map(&new(cl::MEM_HOST_READ_ONLY), MAP_WRITE), refused);
    assert_eq!(map(&new(cl::MEM_HOST_READ_ONLY), MAP_READ), Ok(()));
    assert_eq!(map(&new(cl::MEM_HOST_WRITE_ONLY), MAP_READ), refused);
    assert_eq!(map(&new(cl::MEM_HOST_WRITE_ONLY), MAP_WRITE_INVALIDATE_REGION), Ok(()));
    setup.queue.finish().unwrap();
}
