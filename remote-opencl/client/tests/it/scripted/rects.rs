//! Rectangles of buffers: one message each, or one command per row for a manager without commands on rectangles.

use super::{Setup, source, target};
use crate::scripted_manager::ScriptedManager;
use fpga_client::rect::Layout;
use fpga_client::{ClError, Operation};
use std::sync::atomic::Ordering;

const ROWS: usize = 1080;
const REGION: [usize; 3] = [16, ROWS, 2];
const SIZE: usize = 64 * ROWS * 2;

/// Writes a rectangle with gaps, copies it elsewhere, and reads it from there. Returns the number of commands sent.
fn there_and_back(setup: &Setup) -> usize {
    let (first, second) = (setup.buffer(SIZE), setup.buffer(SIZE));
    let at = |origin: [usize; 3], row, slice| Layout::new(origin, REGION, row, slice).unwrap();
    let (here, there) = (at([8, 0, 0], 64, 64 * ROWS), at([0; 3], 0, 0));
    let host = at([0; 3], 20, 20 * ROWS);
    let span = host.end(REGION).unwrap() - host.start();
    let bytes: Vec<u8> = (0..span).map(|n| u8::try_from(n * 7 % 253).unwrap()).collect();
    let data = source(&bytes);
    let write = Operation::WriteRect { buffer: &first, layout: here, host, region: REGION, data };
    let written = setup.queue.enqueue(write, &[]).unwrap();
    let copy = Operation::CopyRect { source: (&first, here), target: (&second, there), region: REGION };
    let copied = setup.queue.enqueue(copy, &[written]).unwrap();
    let mut result = vec![0xEE; span];
    let read = Operation::ReadRect {
        buffer: &second,
        layout: there,
        host,
        region: REGION,
        target: target(&mut result),
    };
    setup.queue.enqueue(read, &[copied]).unwrap().wait_for_status().unwrap();
    for (at, (got, sent)) in result.iter().zip(&bytes).enumerate() {
        assert_eq!(*got, if at % 20 < 16 { *sent } else { 0xEE }, "byte {at}");
    }
    setup.manager.script().commands.lock().unwrap().len()
}

#[test]
fn a_rectangle_is_one_message_however_many_rows_it_has() {
    assert_eq!(there_and_back(&Setup::new()), 3);
    assert_eq!(
        there_and_back(&Setup::with_properties(fpga_client::cl::QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)),
        3
    );
}

#[test]
fn a_manager_that_knows_no_rectangles_gets_rows() {
    for (properties, more) in [(0, 0), (fpga_client::cl::QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE, 3)] {
        let manager = ScriptedManager::start();
        manager.script().knows_no_rects.store(true, Ordering::SeqCst);
        let commands = there_and_back(&Setup::of(manager, properties));
        assert_eq!(commands, 3 * 2 * ROWS + more, "and a marker each where nothing else orders them");
    }
}

#[test]
fn rectangles_that_the_standard_forbids_are_refused_at_once() {
    let setup = Setup::new();
    let buffer = setup.buffer(1024);
    let region = [4, 4, 1];
    let at = |x, y| Layout::new([x, y, 0], region, 64, 0).unwrap();
    let host = Layout::new([0; 3], region, 0, 0).unwrap();
    let mut bytes = [0; 16];
    let read = |layout, bytes: &mut [u8]| {
        let read = Operation::ReadRect { buffer: &buffer, layout, host, region, target: target(bytes) };
        setup.queue.enqueue(read, &[]).map(|event| event.wait_for_status())
    };
    assert_eq!(read(at(60, 12), &mut bytes).unwrap(), Ok(()));
    assert_eq!(read(at(61, 12), &mut bytes).unwrap_err(), ClError::INVALID_VALUE);
    let copy = |to| {
        let copy = Operation::CopyRect { source: (&buffer, at(0, 0)), target: (&buffer, to), region };
        setup.queue.enqueue(copy, &[]).map(|event| event.wait_for_status())
    };
    assert_eq!(copy(at(2, 2)).unwrap_err(), ClError::MEM_COPY_OVERLAP);
    assert_eq!(copy(at(8, 0)).unwrap(), Ok(()));
}
