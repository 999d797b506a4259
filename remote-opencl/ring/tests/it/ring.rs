//! The ring with two well-behaved sides, and with a side that writes arbitrary words.

use fpga_ring::{Broken, Consumer, Direction, Frames, Layout, Memory, Producer, Readiness, frame};
use proptest::prelude::*;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug)]
struct Heap(Vec<AtomicU64>);

impl Memory for Heap {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

const CAPACITY: usize = 8;

fn ring() -> (Layout, Arc<Heap>) {
    let layout = Layout::new(CAPACITY).unwrap();
    (layout, Arc::new(Heap((0..layout.words()).map(|_| AtomicU64::new(0)).collect())))
}

#[test]
fn what_can_hold_no_ring_is_refused() {
    for capacity in [0, 1, 2, 3, 12, usize::MAX] {
        assert!(Layout::new(capacity).is_err(), "{capacity}");
    }
    let layout = Layout::new(1024).unwrap();
    let (_, small) = ring();
    assert!(Producer::new(small.clone(), layout, Direction::ToClient).is_err());
    assert!(Consumer::new(small, layout, Direction::ToClient).is_err());
}

#[test]
fn who_waits_is_rung_for_once() {
    use fpga_ring::Bell;
    let (layout, memory) = ring();
    let mut producer = Producer::new(memory.clone(), layout, Direction::ToManager).unwrap();
    let mut consumer = Consumer::new(memory, layout, Direction::ToManager).unwrap();
    let word = [1; 8];
    assert_eq!(producer.write(&word).unwrap(), (8, Bell::Silent), "nobody waits yet");
    assert_eq!(consumer.wait().unwrap(), Readiness::Ready);
    let mut got = Vec::new();
    assert_eq!(consumer.read(&mut got).unwrap(), Bell::Silent);
    assert_eq!(consumer.wait().unwrap(), Readiness::Waiting);
    assert_eq!(producer.write(&word).unwrap(), (8, Bell::Ring));
    assert_eq!(producer.write(&word).unwrap(), (8, Bell::Silent), "it was rung for");
    assert_eq!(producer.write(&[2; 8 * CAPACITY]).unwrap().0, 8 * (CAPACITY - 2), "as much as fits");
    assert_eq!(producer.wait_for_room().unwrap(), Readiness::Waiting);
    assert_eq!(consumer.read(&mut got).unwrap(), Bell::Ring);
    assert_eq!(producer.wait_for_room().unwrap(), Readiness::Ready);
    assert_eq!(got.len(), 8 * (CAPACITY + 1));
}

#[test]
fn the_two_directions_share_no_word() {
    let (layout, memory) = ring();
    let mut there = Producer::new(memory.clone(), layout, Direction::ToManager).unwrap();
    let mut back = Producer::new(memory.clone(), layout, Direction::ToClient).unwrap();
    assert_eq!(there.write(&[1; 8 * CAPACITY]).unwrap().0, 8 * CAPACITY);
    assert_eq!(back.write(&[2; 8 * CAPACITY]).unwrap().0, 8 * CAPACITY);
    for (direction, byte) in [(Direction::ToManager, 1), (Direction::ToClient, 2)] {
        let mut got = Vec::new();
        let _ = Consumer::new(memory.clone(), layout, direction).unwrap().read(&mut got).unwrap();
        assert_eq!(got, [byte; 8 * CAPACITY]);
    }
}

proptest! {
    #[test]
    fn frames_of_any_size_pass_a_small_ring(
        contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 1..20)
    ) {
        let (layout, memory) = ring();
        let mut producer = Producer::new(memory.clone(), layout, Direction::ToClient).unwrap();
        let mut consumer = Consumer::new(memory, layout, Direction::ToClient).unwrap();
        let mut out = bytes::BytesMut::new();
        for content in &contents {
            frame(&mut out, |out| { out.extend_from_slice(content); Ok::<_, Infallible>(()) }).unwrap();
        }
        let mut frames = Frames::new(200);
        let mut got = Vec::new();
        let mut left = &out[..];
        while !left.is_empty() {
            let (written, _) = producer.write(left).unwrap();
            left = &left[written..];
            let _ = consumer.read(frames.buffer()).unwrap();
            while let Some(frame) = frames.take().unwrap() {
                got.push(frame.to_vec());
            }
        }
        prop_assert_eq!(got, contents);
    }

    /// Whatever the other side writes, wherever and whenever, a read gives an error or at most a ring's worth of
    /// bytes.
    #[test]
    fn a_side_that_lies_is_found_out_or_harms_nobody(
        writes in prop::collection::vec((0..80usize, any::<u64>(), any::<bool>()), 1..50)
    ) {
        let (layout, memory) = ring();
        let mut producer = Producer::new(memory.clone(), layout, Direction::ToClient).unwrap();
        let mut consumer = Consumer::new(memory.clone(), layout, Direction::ToManager).unwrap();
        for (index, value, small) in writes {
            let value = if small { value % 20 } else { value };
            memory.0[index % layout.words()].store(value, Ordering::Relaxed);
            let mut got = Vec::new();
            match consumer.read(&mut got) {
                Ok(_) => prop_assert!(got.len() <= CAPACITY * 8),
                Err(Broken) => prop_assert!(got.is_empty()),
            }
            if let Ok((written, _)) = producer.write(&[1; 40]) {
                prop_assert!(written <= 40);
            }
            let _ = consumer.wait();
            let _ = producer.wait_for_room();
        }
    }
}
