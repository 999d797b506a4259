//! The words that a client writes into the memory of a command ring.

use fpga_protocol::v1::ClientMessage;
use fpga_ring::{Consumer, Direction, Frames, Layout, Memory, Producer};
use prost::Message as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of data words in each direction.
const CAPACITY: usize = 16;
/// Greatest length of a frame in bytes.
const LIMIT: usize = 256;
const WORD: usize = size_of::<u64>();

/// Memory that both sides can write.
#[derive(Debug)]
struct Words(Vec<AtomicU64>);

impl Memory for Words {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

/// Takes `data` as the actions of a hostile client and of the manager: a byte for each action, followed by its
/// arguments. The client writes any word of the ring's memory; the manager reads, writes, or waits. A read returns at
/// most as much as the ring holds, no frame exceeds the limit, and an invalid frame is an error.
///
/// # Panics
/// If this does not hold.
pub fn ring_frames(data: &[u8]) {
    let layout = Layout::new(CAPACITY).unwrap_or_else(|error| panic!("{error}"));
    let memory = Arc::new(Words((0..layout.words()).map(|_| AtomicU64::new(0)).collect()));
    let consumer = Consumer::new(memory.clone(), layout, Direction::ToManager);
    let producer = Producer::new(memory.clone(), layout, Direction::ToClient);
    let (Ok(mut consumer), Ok(mut producer)) = (consumer, producer) else {
        panic!("the memory holds no ring")
    };
    let mut frames = Frames::new(LIMIT);
    let mut rest = data.iter().copied();
    while let Some(what) = rest.next() {
        match what % 8 {
            // Positions are small numbers, or slightly less than 2⁶⁴.
            0..=2 => {
                let (Some(at), Some(value)) = (rest.next(), rest.next()) else { return };
                write(
                    &memory,
                    at,
                    if value < 128 { value.into() } else { u64::from(value).wrapping_sub(256) },
                );
            }
            3 => {
                let Some(at) = rest.next() else { return };
                let mut value = [0; WORD];
                value.iter_mut().for_each(|byte| *byte = rest.next().unwrap_or(0));
                write(&memory, at, u64::from_le_bytes(value));
            }
            4 | 5 => {
                let before = frames.buffer().len();
                if consumer.read(frames.buffer()).is_err() {
                    return;
                }
                assert!(frames.buffer().len() - before <= CAPACITY * WORD, "more than the ring holds");
                loop {
                    match frames.take() {
                        Ok(Some(frame)) => {
                            assert!(frame.len() <= LIMIT, "a frame of {} bytes", frame.len());
                            // In a session, a frame that can't be decoded ends the session.
                            let _ = ClientMessage::decode(frame);
                        }
                        Ok(None) => break,
                        Err(_) => return,
                    }
                }
                assert!(frames.buffer().len() < 2 * WORD + LIMIT, "what is kept is less than a frame");
            }
            6 => {
                let bytes = [what; 3 * WORD];
                let Ok((written, _)) = producer.write(&bytes) else { return };
                assert!(written <= bytes.len() && written.is_multiple_of(WORD));
                let Ok(room) = producer.room() else { return };
                assert!(room <= CAPACITY * WORD);
            }
            _ => {
                if consumer.wait().is_err() || producer.wait_for_room().is_err() {
                    return;
                }
            }
        }
    }
}

fn write(memory: &Words, at: u8, value: u64) {
    memory.0[usize::from(at) % memory.0.len()].store(value, Ordering::Relaxed);
}
