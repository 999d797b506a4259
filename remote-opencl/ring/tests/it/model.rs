//! The ring under a model checker, which tries every order of the two sides' steps that the memory model allows.
//!
//! The words are Loom's; all other code is that of production. A bell is a mutex and a condition variable, so that
//! a side that is never woken is a deadlock, which Loom reports. So is a futex.

use fpga_ring::{Bell, Consumer, Direction, Doze, Dozers, Layout, Memory, Producer, Readiness, Word};
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Arc, Condvar, Mutex};
use std::sync::atomic::Ordering;

#[derive(Default)]
struct LoomWord(AtomicU64);

impl Word for LoomWord {
    fn load(&self, order: Ordering) -> u64 {
        self.0.load(order)
    }

    fn store(&self, value: u64, order: Ordering) {
        self.0.store(value, order);
    }

    fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
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

/// A futex: sleeping threads, and the check of the word before a thread falls asleep.
#[derive(Clone)]
struct Futex(Arc<(Mutex<()>, Condvar)>);

impl Futex {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(()), Condvar::new())))
    }

    fn sleep(&self, flag: &LoomWord, ticket: u32) {
        let (asleep, signal) = &*self.0;
        let asleep = asleep.lock().unwrap();
        if flag.load(Ordering::Relaxed) == u64::from(ticket) {
            drop(signal.wait(asleep).unwrap());
        }
    }

    fn wake_all(&self) {
        let (asleep, signal) = &*self.0;
        drop(asleep.lock().unwrap());
        signal.notify_all();
    }
}

/// The reading side of a client, whose threads each wait for a message of their own and take each other's.
struct Threads {
    memory: LoomMemory,
    layout: Layout,
    dozers: Dozers<LoomWord>,
    futex: Futex,
    /// The consumer, the messages that came, and the number of threads that doze.
    receiving: Mutex<(Consumer<LoomMemory>, Vec<u64>, usize)>,
}

impl Threads {
    fn flag(&self) -> &LoomWord {
        self.layout.reader_flag(&self.memory, Direction::ToClient)
    }

    fn drain(&self) {
        let mut receiving = self.receiving.lock().unwrap();
        let (consumer, came, _) = &mut *receiving;
        let mut bytes = Vec::new();
        let _ = consumer.read(&mut bytes).unwrap();
        for word in bytes.chunks(8) {
            came.push(u64::from_le_bytes(word.try_into().unwrap()));
            self.dozers.wake(self.flag(), || self.futex.wake_all());
        }
    }

    fn wait_for(&self, message: u64) {
        self.receiving.lock().unwrap().2 += 1;
        loop {
            let look = self.dozers.look();
            self.drain();
            if self.receiving.lock().unwrap().1.contains(&message) {
                break;
            }
            let doze = self.receiving.lock().unwrap().0.doze().unwrap();
            if let Doze::While(ticket) = doze {
                self.dozers.sleep(look, || self.futex.sleep(self.flag(), ticket));
            }
        }
        let mut receiving = self.receiving.lock().unwrap();
        receiving.2 -= 1;
        if receiving.2 == 0 {
            let _ = receiving.0.end_doze().unwrap();
        }
    }
}

/// `messages` come in one write each; a thread waits for each of them.
fn doze(messages: &'static [u64]) {
    check(move || {
        let (layout, memory) = new_ring(4);
        let mut producer = Producer::new(memory.clone(), layout, Direction::ToClient).unwrap();
        let consumer = Consumer::new(memory.clone(), layout, Direction::ToClient).unwrap();
        let threads = Arc::new(Threads {
            memory,
            layout,
            dozers: Dozers::default(),
            futex: Futex::new(),
            receiving: Mutex::new((consumer, Vec::new(), 0)),
        });
        let writer = loom::thread::spawn({
            let futex = threads.futex.clone();
            move || {
                for message in messages {
                    let (_, bell) = producer.write(&message.to_le_bytes()).unwrap();
                    assert_ne!(bell, Bell::Ring, "nobody waits at the bell");
                    if bell == Bell::Wake {
                        futex.wake_all();
                    }
                }
            }
        });
        let (first, others) = messages.split_first().unwrap();
        let others: Vec<_> = others
            .iter()
            .map(|message| {
                let threads = threads.clone();
                loom::thread::spawn(move || threads.wait_for(*message))
            })
            .collect();
        threads.wait_for(*first);
        for other in others {
            other.join().unwrap();
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_reader_that_dozes_is_woken_by_a_message() {
    doze(&[7]);
}

#[test]
fn threads_that_doze_wake_each_other_for_messages_that_they_take_for_one_another() {
    doze(&[7, 8]);
}
