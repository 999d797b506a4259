//! Transfers that are longer than what the manager may keep for its clients.

use super::{Setup, start};
use fpga_client::cl::{MEM_COPY_HOST_PTR, MEM_HOST_NO_ACCESS, MEM_USE_HOST_PTR};
use fpga_client::cl::{QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, QUEUE_PROFILING_ENABLE};
use fpga_client::{Buffer, Event, HostSource, HostTarget, Initial, Operation, Queue, Result};
use std::sync::Arc;

/// More than the 32 MiB that the manager then keeps for a tenant's transfers, and no multiple of anything.
const BYTES: usize = (70 << 20) + 3;
const OFFSET: usize = 5;

fn setup() -> Setup {
    Setup::of(start(&["--client-memory", "192MiB", "--shared-memory", "off"]))
}

fn pattern(seed: u64) -> Vec<u8> {
    (0..BYTES as u64).map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn write(queue: &Arc<Queue>, buffer: &Arc<Buffer>, from: &[u8], wait: &[Arc<Event>]) -> Result<Arc<Event>> {
    // SAFETY: the callers keep the bytes until the write has ended.
    let data = unsafe { HostSource::borrowed(from.as_ptr(), from.len()) };
    queue.enqueue(Operation::Write { buffer, offset: OFFSET, data }, wait)
}

fn read(
    queue: &Arc<Queue>,
    buffer: &Arc<Buffer>,
    into: &mut [u8],
    wait: &[Arc<Event>],
) -> Result<Arc<Event>> {
    // SAFETY: the callers keep the bytes until the read has ended.
    let target = unsafe { HostTarget::borrowed(into.as_mut_ptr(), into.len()) };
    queue.enqueue(Operation::Read { buffer, offset: OFFSET, target }, wait)
}

fn buffer(setup: &Setup) -> Arc<Buffer> {
    Buffer::new(&setup.context, 0, OFFSET + BYTES, Initial::Nothing).unwrap()
}

/// Where bytes differ first, and last.
fn difference(got: &[u8], wanted: &[u8]) -> Option<(usize, usize)> {
    let differs = |at: &usize| got[*at] != wanted[*at];
    Some(((0..got.len()).find(differs)?, (0..got.len()).rfind(differs)?))
}

#[test]
fn a_transfer_that_is_longer_than_the_managers_memory_for_clients_is_right_in_every_queue() {
    let setup = setup();
    for order in [0, QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
        let queue = Queue::new(&setup.context, &setup.device, order).unwrap();
        let (one, two) = (buffer(&setup), buffer(&setup));
        let sent = pattern(order);
        let (mut relayed, mut got) = (vec![0; BYTES], vec![0; BYTES]);
        // From one buffer to the other through host memory, without waiting in between.
        let written = write(&queue, &one, &sent, &[]).unwrap();
        let read_back = read(&queue, &one, &mut relayed, &[written]).unwrap();
        let written = write(&queue, &two, &relayed, &[read_back]).unwrap();
        read(&queue, &two, &mut got, &[written]).unwrap().wait_for_status().unwrap();
        assert_eq!((difference(&relayed, &sent), difference(&got, &sent)), (None, None), "{order}");
    }
}

#[test]
fn a_buffer_begins_with_content_that_is_longer_than_the_managers_memory_for_clients() {
    let setup = setup();
    let content = pattern(3);
    let mut used = content.clone();
    // SAFETY: the bytes live longer than the buffer.
    let memory = unsafe { HostTarget::borrowed(used.as_mut_ptr(), used.len()) };
    for (flags, initial) in [
        (MEM_COPY_HOST_PTR | MEM_HOST_NO_ACCESS, Initial::Copy(&content)),
        (MEM_USE_HOST_PTR, Initial::Use(memory)),
    ] {
        let begins = Buffer::new(&setup.context, flags, BYTES, initial).unwrap();
        let copy = buffer(&setup);
        let (source, target) = (&begins, &copy);
        let copied = Operation::Copy { source, target, source_offset: 0, target_offset: OFFSET, size: BYTES };
        setup.queue.enqueue(copied, &[]).unwrap();
        let mut got = vec![0; BYTES];
        read(&setup.queue, &copy, &mut got, &[]).unwrap().wait_for_status().unwrap();
        assert_eq!(difference(&got, &content), None, "{flags}");
    }
}

#[test]
fn a_long_write_takes_what_the_program_writes_before_it_sets_the_event() {
    let setup = setup();
    let buffer = buffer(&setup);
    let mut bytes = vec![0; BYTES];
    let filled = Event::user(&setup.context).unwrap();
    let written = write(&setup.queue, &buffer, &bytes, &[Arc::clone(&filled)]).unwrap();
    bytes.copy_from_slice(&pattern(7));
    filled.set_user_status(0).unwrap();
    written.wait_for_status().unwrap();
    assert!(written.profiling().is_ok());
    let mut got = vec![0; BYTES];
    read(&setup.queue, &buffer, &mut got, &[]).unwrap().wait_for_status().unwrap();
    assert_eq!(difference(&got, &bytes), None);
}

#[test]
fn a_long_transfer_behind_a_failed_event_fails_and_the_queue_goes_on() {
    let setup = setup();
    let queue = Queue::new(&setup.context, &setup.device, QUEUE_PROFILING_ENABLE).unwrap();
    let buffer = buffer(&setup);
    let bytes = pattern(1);
    let failed = Event::user(&setup.context).unwrap();
    let written = write(&queue, &buffer, &bytes, &[Arc::clone(&failed)]).unwrap();
    failed.set_user_status(-1).unwrap();
    assert!(written.wait_for_status().is_err());
    let mut got = vec![0; BYTES];
    write(&queue, &buffer, &bytes, &[]).unwrap();
    read(&queue, &buffer, &mut got, &[]).unwrap().wait_for_status().unwrap();
    assert_eq!(difference(&got, &bytes), None);
}
