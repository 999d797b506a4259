//! Random programs on an in-order queue leave the same content in their buffers as a native execution, however
//! commands are batched, inlined and cut into chunks.

use super::Setup;
use fpga_client::cl::{MAP_READ, MAP_WRITE, MAP_WRITE_INVALIDATE_REGION};
use fpga_client::{Buffer, HostSource, HostTarget, Operation};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const BUFFERS: usize = 2;
const SIZE: usize = 40_000;

#[derive(Debug, Clone)]
enum Step {
    Write { buffer: usize, at: Region, seed: u8 },
    Fill { buffer: usize, at: Region, byte: u8 },
    Copy { from: usize, at: Region, to_offset: usize },
    Read { buffer: usize, at: Region },
    Map { buffer: usize, at: Region, access: u64, byte: u8 },
    Flush,
    Finish,
}

#[derive(Debug, Clone, Copy)]
struct Region {
    offset: usize,
    size: usize,
}

impl Region {
    fn of<'a>(&self, bytes: &'a mut [u8]) -> &'a mut [u8] {
        &mut bytes[self.offset..self.offset + self.size]
    }
}

fn region() -> impl Strategy<Value = Region> {
    let size = prop_oneof![1..200usize, 16_000..17_000usize, 30_000..SIZE];
    size.prop_flat_map(|size| (0..=SIZE - size).prop_map(move |offset| Region { offset, size }))
}

fn step() -> impl Strategy<Value = Step> {
    let access = prop_oneof![Just(MAP_READ), Just(MAP_WRITE), Just(MAP_WRITE_INVALIDATE_REGION)];
    prop_oneof![
        3 => (0..BUFFERS, region(), any::<u8>()).prop_map(|(buffer, at, seed)| Step::Write { buffer, at, seed }),
        2 => (0..BUFFERS, region(), any::<u8>()).prop_map(|(buffer, at, byte)| Step::Fill { buffer, at, byte }),
        2 => (0..BUFFERS, region(), any::<prop::sample::Index>()).prop_map(|(from, at, index)| {
            Step::Copy { from, at, to_offset: index.index(SIZE - at.size + 1) }
        }),
        2 => (0..BUFFERS, region()).prop_map(|(buffer, at)| Step::Read { buffer, at }),
        2 => (0..BUFFERS, region(), access, any::<u8>())
            .prop_map(|(buffer, at, access, byte)| Step::Map { buffer, at, access, byte }),
        1 => Just(Step::Flush),
        1 => Just(Step::Finish),
    ]
}

/// Runs a program on a manager and on vectors. `Err` names the difference.
fn run(setup: &Setup, steps: &[Step]) -> Result<(), TestCaseError> {
    let buffers: Vec<Arc<Buffer>> = (0..BUFFERS).map(|_| setup.buffer(SIZE)).collect();
    let mut model = vec![vec![0u8; SIZE]; BUFFERS];
    let mut reads: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    let mut wrong_maps = Vec::new();
    let enqueue = |operation: Operation<'_>| setup.queue.enqueue(operation, &[]).unwrap();
    for step in steps {
        match step.clone() {
            Step::Write { buffer, at, seed } => {
                let bytes: Vec<u8> = (0..at.size).map(|n| seed.wrapping_add(n as u8)).collect();
                at.of(&mut model[buffer]).copy_from_slice(&bytes);
                let data = HostSource::owned(bytes);
                enqueue(Operation::Write { buffer: &buffers[buffer], offset: at.offset, data });
            }
            Step::Fill { buffer, at, byte } => {
                at.of(&mut model[buffer]).fill(byte);
                let (offset, size) = (at.offset, at.size);
                enqueue(Operation::Fill { buffer: &buffers[buffer], pattern: &[byte], offset, size });
            }
            Step::Copy { from, at, to_offset } => {
                let to = 1 - from;
                let bytes = at.of(&mut model[from]).to_vec();
                model[to][to_offset..to_offset + at.size].copy_from_slice(&bytes);
                enqueue(Operation::Copy {
                    source: &buffers[from],
                    target: &buffers[to],
                    source_offset: at.offset,
                    target_offset: to_offset,
                    size: at.size,
                });
            }
            Step::Read { buffer, at } => {
                let mut result = vec![0; at.size];
                // SAFETY: the vector's memory stays in place, in `reads`, until the queue is finished below.
                let target = unsafe { HostTarget::borrowed(result.as_mut_ptr(), result.len()) };
                enqueue(Operation::Read { buffer: &buffers[buffer], offset: at.offset, target });
                reads.push((result, at.of(&mut model[buffer]).to_vec()));
            }
            Step::Map { buffer, at, access, byte } => {
                let mapped = setup.queue.map(&buffers[buffer], access, at.offset, at.size, &[]).unwrap();
                mapped.event.wait().unwrap();
                // SAFETY: the map has completed, so these bytes belong to the test until the unmap.
                let bytes = unsafe { std::slice::from_raw_parts_mut(mapped.address as *mut u8, at.size) };
                let expected = at.of(&mut model[buffer]);
                if access != MAP_WRITE_INVALIDATE_REGION && bytes != expected {
                    wrong_maps.push(step);
                }
                if access != MAP_READ {
                    bytes.fill(byte);
                    expected.fill(byte);
                }
                setup.queue.unmap(&buffers[buffer], mapped.address, &[]).unwrap();
            }
            Step::Flush => setup.queue.flush().unwrap(),
            Step::Finish => setup.queue.finish().unwrap(),
        }
    }
    // Before any assertion: the targets of the reads must live until the queue has finished.
    setup.queue.finish().unwrap();
    prop_assert!(wrong_maps.is_empty(), "{wrong_maps:?}");
    for (index, (read, expected)) in reads.iter().enumerate() {
        prop_assert!(read == expected, "read {index}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_program_computes_what_it_would_natively(
        steps in prop::collection::vec(step(), 1..60),
        chunk_bytes in prop_oneof![Just(0u64), Just(1_000), Just(1 << 20)],
    ) {
        let setup = Setup::new();
        setup.manager.script().chunk_bytes.store(chunk_bytes, Ordering::SeqCst);
        run(&setup, &steps)?;
    }
}
