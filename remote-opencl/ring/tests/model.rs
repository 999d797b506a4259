//! The ring under a model checker, which tries every order of the two sides' steps that the memory model allows.
//!
//! The words are Loom's; all other code is that of production. A bell is a mutex and a condition variable, so that
//! a side that is never woken is a deadlock, which Loom reports.

#![allow(clippy::unwrap_used, reason = "a test")]

use fpga_ring::{Bell, Consumer, Direction, Layout, Memory, Producer, Readiness, Word};
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use std::sync::atomic::Ordering;

struct LoomWord(AtomicU64);

impl Word for LoomWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

/// Memory with the words of one direction only, since the model uses no others.
#[derive(Clone)]
struct LoomMemory(Arc<Vec<LoomWord>>);

impl Memory for LoomMemory {
    type Word = LoomWord;

    fn words(&self) -> &[LoomWord] {
        &self.0
    }
}

/// The bell at which one side sleeps.
#[derive(Clone)]
struct Doorbell(Arc<(Mutex<bool>, Condvar)>);

impl Doorbell {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn ring(&self) {
        let (rung, signal) = &*self.0;
        *rung.lock().unwrap() = true;
        signal.notify_one();
    }

    fn sleep(&self) {
        let (rung, signal) = &*self.0;
        let mut rung = rung.lock().unwrap();
        while !*rung {
            rung = signal.wait(rung).unwrap();
        }
        *rung = false;
    }
}

fn new_ring(capacity: usize) -> (Layout, LoomMemory) {
    let layout = Layout::new(capacity).unwrap();
    let words = (0..layout.words()).map(|_| LoomWord(AtomicU64::new(0))).collect();
    (layout, LoomMemory(Arc::new(words)))
}

/// Runs `model` in all interleavings with up to two preemptions, enough to find such bugs. An unbounded search
/// takes hours.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Sends batches of words over a ring of `capacity` words and checks that all of them arrive, in order, where both
/// sides sleep whenever they have nothing to do.
fn transfer(capacity: usize, batches: &'static [usize]) {
    check(move || {
        let (layout, memory) = new_ring(capacity);
        let (for_reader, for_writer) = (Doorbell::new(), Doorbell::new());
        let mut producer = Producer::new(memory.clone(), layout, Direction::ToClient).unwrap();
        let writer = loom::thread::spawn({
            let (for_reader, for_writer) = (for_reader.clone(), for_writer.clone());
            move || {
                let mut next = 1u64;
                for batch in batches {
                    let bytes: Vec<u8> = (next..).take(*batch).flat_map(u64::to_le_bytes).collect();
                    next += *batch as u64;
                    let mut left = &bytes[..];
                    while !left.is_empty() {
                        let (written, bell) = producer.write(left).unwrap();
                        left = &left[written..];
                        if bell == Bell::Ring {
                            for_reader.ring();
                        }
                        if !left.is_empty() && producer.wait_for_room().unwrap() == Readiness::Waiting {
                            for_writer.sleep();
                        }
                    }
                }
            }
        });
        let mut consumer = Consumer::new(memory, layout, Direction::ToClient).unwrap();
        let total: usize = batches.iter().sum();
        let mut got = Vec::new();
        while got.len() < total * 8 {
            if consumer.read(&mut got).unwrap() == Bell::Ring {
                for_writer.ring();
            }
            if got.len() < total * 8 && consumer.wait().unwrap() == Readiness::Waiting {
                for_reader.sleep();
            }
        }
        let expected: Vec<u8> = (1..).take(total).flat_map(u64::to_le_bytes).collect();
        assert_eq!(got, expected);
        writer.join().unwrap();
    });
}

#[test]
fn what_is_written_arrives_in_order_and_wakes_a_sleeping_reader() {
    transfer(4, &[1, 1]);
}

#[test]
fn a_writer_without_room_sleeps_until_there_is_some() {
    transfer(4, &[5]);
}

#[test]
fn words_that_wrap_around_are_never_seen_before_they_are_whole() {
    transfer(4, &[3, 3]);
}

/// The reader polls for a while before it sleeps, as a thread does that waits for an answer.
#[test]
fn a_reader_that_stayed_awake_is_not_forgotten_when_it_sleeps() {
    check(|| {
        let (layout, memory) = new_ring(4);
        let bell = Doorbell::new();
        let mut producer = Producer::new(memory.clone(), layout, Direction::ToManager).unwrap();
        let mut consumer = Consumer::new(memory, layout, Direction::ToManager).unwrap();
        assert_eq!(consumer.wait().unwrap(), Readiness::Waiting);
        let writer = loom::thread::spawn({
            let bell = bell.clone();
            move || {
                for _ in 0..2 {
                    let (written, ring) = producer.write(&7u64.to_le_bytes()).unwrap();
                    assert_eq!(written, 8);
                    if ring == Bell::Ring {
                        bell.ring();
                    }
                }
            }
        });
        consumer.stay_awake();
        let mut got = Vec::new();
        while got.len() < 16 {
            let _ = consumer.read(&mut got).unwrap();
            if got.len() < 16 && consumer.wait().unwrap() == Readiness::Waiting {
                bell.sleep();
            }
        }
        writer.join().unwrap();
    });
}
