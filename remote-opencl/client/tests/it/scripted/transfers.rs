//! Large reads and writes, binaries, initial content.

use super::{Setup, source, target};
use fpga_client::cl::{MEM_COPY_HOST_PTR, MEM_USE_HOST_PTR};
use fpga_client::{Buffer, ClError, Initial, Operation, Program};
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n * 31 % 251).unwrap()).collect()
}

#[test]
fn large_writes_and_reads_come_through_whole() {
    let setup = Setup::new();
    for len in [1, 16 * 1024, 16 * 1024 + 1, 256 * 1024, 3 * 1024 * 1024 + 7] {
        let bytes = pattern(len);
        let buffer = setup.buffer(len);
        setup
            .queue
            .enqueue(Operation::Write { buffer: &buffer, offset: 0, data: source(&bytes) }, &[])
            .unwrap();
        let mut result = vec![0; len];
        let read = Operation::Read { buffer: &buffer, offset: 0, target: target(&mut result) };
        setup.queue.enqueue(read, &[]).unwrap().wait().unwrap();
        assert!(result == bytes, "{len} bytes");
    }
}

#[test]
fn the_manager_chooses_the_size_of_its_chunks() {
    let setup = Setup::new();
    setup.manager.script().chunk_bytes.store(1000, Ordering::SeqCst);
    let bytes = pattern(12_345);
    let buffer = Buffer::new(&setup.context, MEM_COPY_HOST_PTR, bytes.len(), Initial::Copy(&bytes)).unwrap();
    let mut result = vec![0; 10_000];
    let read = Operation::Read { buffer: &buffer, offset: 2_345, target: target(&mut result) };
    setup.queue.enqueue(read, &[]).unwrap().wait().unwrap();
    assert!(result == bytes[2_345..]);
}

#[test]
fn several_transfers_at_once_do_not_mix() {
    let setup = Setup::new();
    let inputs: Vec<_> = (0..8u8).map(|n| vec![n + 1; 300_000]).collect();
    let mut outputs = vec![vec![0u8; 300_000]; 8];
    let buffers: Vec<_> = inputs.iter().map(|bytes| setup.buffer(bytes.len())).collect();
    for (buffer, bytes) in buffers.iter().zip(&inputs) {
        setup.queue.enqueue(Operation::Write { buffer, offset: 0, data: source(bytes) }, &[]).unwrap();
    }
    for (buffer, bytes) in buffers.iter().zip(&mut outputs) {
        setup.queue.enqueue(Operation::Read { buffer, offset: 0, target: target(bytes) }, &[]).unwrap();
    }
    setup.queue.finish().unwrap();
    assert!(inputs == outputs);
}

#[test]
fn buffers_begin_with_what_they_were_given() {
    let setup = Setup::new();
    for len in [100, 100_000] {
        let mut bytes = pattern(len);
        let copied = Buffer::new(&setup.context, MEM_COPY_HOST_PTR, len, Initial::Copy(&bytes)).unwrap();
        let used =
            Buffer::new(&setup.context, MEM_USE_HOST_PTR, len, Initial::Use(target(&mut bytes))).unwrap();
        for buffer in [copied, used] {
            let mut result = vec![0; len];
            let read = Operation::Read { buffer: &buffer, offset: 0, target: target(&mut result) };
            setup.queue.enqueue(read, &[]).unwrap().wait().unwrap();
            assert!(result == bytes);
        }
    }
}

#[test]
fn initial_content_must_fit_the_flags_and_the_size() {
    let setup = Setup::new();
    let new = |flags, size, initial| Buffer::new(&setup.context, flags, size, initial).unwrap_err();
    assert_eq!(new(MEM_COPY_HOST_PTR, 4, Initial::Nothing), ClError::INVALID_HOST_PTR);
    assert_eq!(new(0, 4, Initial::Copy(&[0; 4])), ClError::INVALID_HOST_PTR);
    assert_eq!(new(MEM_COPY_HOST_PTR, 5, Initial::Copy(&[0; 4])), ClError::INVALID_HOST_PTR);
    assert_eq!(new(MEM_COPY_HOST_PTR | MEM_USE_HOST_PTR, 4, Initial::Nothing), ClError::INVALID_VALUE);
    assert_eq!(new(0, 0, Initial::Nothing), ClError::INVALID_BUFFER_SIZE);
    assert_eq!(new(0, usize::MAX, Initial::Nothing), ClError::INVALID_BUFFER_SIZE);
}

#[test]
fn a_binary_travels_once() {
    let setup = Setup::new();
    let binary = pattern(200_000);
    for _ in 0..2 {
        let binaries = [(Arc::clone(&setup.device), binary.as_slice())];
        let (program, statuses) = Program::with_binaries(&setup.context, &binaries).unwrap();
        assert_eq!(statuses, [0]);
        program.build(&[], "").unwrap();
    }
    let stored = setup.manager.script().binaries.lock().unwrap();
    assert!(stored.values().all(|bytes| *bytes == binary));
    assert_eq!(stored.len(), 1);
    let empty = Program::with_binaries(&setup.context, &[(Arc::clone(&setup.device), &[])]).unwrap_err();
    assert_eq!((empty.error, empty.statuses), (ClError::INVALID_VALUE, vec![-30]));
}
