//! Ownership of shared memory under a model checker, which tries every order of the steps of threads and manager
//! that the memory model allows.
//!
//! The bytes are a cell; Loom fails when two accesses conflict without synchronisation. The manager is a thread
//! that takes messages in order and answers. Each rule has a second test that breaks the rule, in which Loom must
//! find the error.

#![allow(unsafe_code)]

use super::ownership::{Reads, Users};
use crate::memory::free_ranges::FreeRanges;
use loom::cell::UnsafeCell;
use loom::sync::mpsc::{Receiver, Sender, channel};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::collections::BTreeMap;

/// The bytes that client and manager share.
struct Shared(UnsafeCell<u32>);

// SAFETY: Loom checks each access, and fails the model if two conflict.
unsafe impl Sync for Shared {}

type Bytes = Arc<Shared>;

/// A message to the manager.
#[derive(Clone, Copy)]
enum Message {
    /// A command that changes the bytes, once the user event `after` is set.
    Change {
        after: Option<u64>,
    },
    /// A read in place. The manager only reports when its turn has come.
    Marker,
    UserEvent(u64),
    Set(u64),
    /// No later wait list names the event.
    Release(u64),
    End,
}

/// The part of a session that orders messages: commands wait in a batch for a flush, and releases for the next batch.
#[derive(Clone)]
struct Orders {
    batch: Arc<Mutex<Vec<Message>>>,
    releases: Arc<Mutex<Vec<u64>>>,
    to_manager: Sender<Message>,
}

/// The rule that a model breaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The rule that the model tests.
    Rule,
    /// The order of a command with respect to the reads is determined before an earlier batch is sent.
    Order,
}

impl Orders {
    fn new(to_manager: Sender<Message>) -> Self {
        Self { batch: Arc::default(), releases: Arc::default(), to_manager }
    }

    fn say(&self, message: Message) {
        self.to_manager.send(message).unwrap();
    }

    /// Sends the batch and then the releases. The caller holds the batch's lock.
    fn send(&self, batch: &mut Vec<Message>) {
        batch.drain(..).for_each(|message| self.say(message));
        let released = std::mem::take(&mut *self.releases.lock().unwrap());
        released.into_iter().for_each(|event| self.say(Message::Release(event)));
    }
}

fn new_bytes() -> Bytes {
    Arc::new(Shared(UnsafeCell::new(0)))
}

fn read(bytes: &Bytes) -> u32 {
    // SAFETY: Loom checks that there is no concurrent write, and fails the model otherwise.
    bytes.0.with(|bytes| unsafe { *bytes })
}

fn add(bytes: &Bytes, more: u32) {
    // SAFETY: Loom checks that there is no concurrent access, and fails the model otherwise.
    bytes.0.with_mut(|bytes| unsafe { *bytes += more });
}

/// Runs a manager until `End`. It reports each command that ended on `ended`. Returns whether every event that a
/// message named existed.
fn manager(bytes: &Bytes, messages: &Receiver<Message>, ended: &Sender<()>) -> bool {
    // User events, and whether each is set.
    let mut events = BTreeMap::new();
    let mut held_back = None;
    let mut all_were_there = true;
    loop {
        match messages.recv().unwrap() {
            Message::End => return all_were_there,
            Message::UserEvent(event) => drop(events.insert(event, false)),
            Message::Set(event) => match events.get_mut(&event) {
                Some(is_set) => *is_set = true,
                None => all_were_there = false,
            },
            Message::Release(event) => drop(events.remove(&event)),
            Message::Marker => ended.send(()).unwrap(),
            Message::Change { after } => {
                all_were_there &= after.is_none_or(|event| events.contains_key(&event));
                held_back = Some(after);
            }
        }
        let may_run = |after: &mut Option<u64>| after.is_none_or(|event| events.get(&event) != Some(&false));
        if held_back.take_if(may_run).is_some() {
            add(bytes, 10);
            ended.send(()).unwrap();
        }
    }
}

/// Runs `model` in all interleavings with up to two preemptions, enough to find such bugs. An unbounded search
/// takes hours.
fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// One thread has the manager change the buffer; another writes to it at once if the rule allows that.
fn a_command_and_a_write(broken: Broken) {
    check(move || {
        let (bytes, users) = (new_bytes(), Arc::new(Mutex::new(Users::default())));
        let ((to_manager, messages), (ended, ends)) = (channel(), channel());
        let at_manager = thread::spawn({
            let bytes = Arc::clone(&bytes);
            move || manager(&bytes, &messages, &ended)
        });
        let writer = thread::spawn({
            let (bytes, users) = (Arc::clone(&bytes), Arc::clone(&users));
            let write = move || {
                add(&bytes, 1);
                true
            };
            move || match broken {
                Broken::Nothing => users.lock().unwrap().if_none(write),
                Broken::Rule | Broken::Order => write(),
            }
        });
        users.lock().unwrap().begin();
        to_manager.send(Message::Change { after: None }).unwrap();
        ends.recv().unwrap();
        users.lock().unwrap().end();
        to_manager.send(Message::End).unwrap();
        let wrote = writer.join().unwrap();
        at_manager.join().unwrap();
        let mut found = 0;
        let is_idle = users.lock().unwrap().if_none(|| {
            found = read(&bytes);
            true
        });
        assert!(is_idle, "what began has ended");
        assert_eq!(found, 10 + u32::from(wrote));
    });
}

#[test]
fn a_write_at_once_and_a_command_never_touch_the_bytes_together() {
    a_command_and_a_write(Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_write_that_does_not_ask_is_found_out() {
    a_command_and_a_write(Broken::Rule);
}

/// A read in place, and a later command that changes the bytes that it reads.
fn a_read_in_place_and_a_change(broken: Broken) {
    const READ: u64 = 7;
    const QUEUE: u64 = 1;
    const USER_EVENT: u64 = 8;
    check(move || {
        let (bytes, reads) = (new_bytes(), Arc::new(Mutex::new(Reads::default())));
        let ((to_manager, messages), (ended, ends)) = (channel(), channel());
        let orders = Orders::new(to_manager);
        let at_manager = thread::spawn({
            let bytes = Arc::clone(&bytes);
            move || manager(&bytes, &messages, &ended)
        });
        reads.lock().unwrap().begin(QUEUE, READ);
        orders.say(Message::Marker);
        // One thread enqueues while another handles the manager's messages.
        let enqueues = thread::spawn({
            let (reads, orders) = (Arc::clone(&reads), orders.clone());
            move || {
                let mut wait = Vec::new();
                let mut batch = orders.batch.lock().unwrap();
                if broken != Broken::Order {
                    orders.send(&mut batch);
                }
                if broken != Broken::Rule {
                    reads.lock().unwrap().precede(&mut wait, || {
                        orders.say(Message::UserEvent(USER_EVENT));
                        Some(USER_EVENT)
                    });
                }
                if broken == Broken::Order {
                    orders.send(&mut batch);
                }
                batch.push(Message::Change { after: wait.pop() });
                orders.send(&mut batch);
            }
        });
        ends.recv().unwrap();
        assert_eq!(read(&bytes), 0, "what was there when the read's turn came");
        let waited_for = reads.lock().unwrap().end(READ);
        if let Some(event) = waited_for {
            orders.say(Message::Set(event));
            orders.releases.lock().unwrap().push(event);
        }
        ends.recv().unwrap();
        enqueues.join().unwrap();
        orders.say(Message::End);
        assert!(at_manager.join().unwrap(), "an event that is named is there");
        assert_eq!(read(&bytes), 10, "the change has run");
    });
}

#[test]
fn what_comes_after_a_read_in_place_waits_until_that_has_copied() {
    a_read_in_place_and_a_change(Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_change_that_does_not_wait_for_a_read_in_place_is_found_out() {
    a_read_in_place_and_a_change(Broken::Rule);
}

#[test]
#[should_panic(expected = "an event that is named is there")]
fn a_place_that_is_found_before_an_earlier_batch_goes_is_found_out() {
    a_read_in_place_and_a_change(Broken::Order);
}

/// Two threads pass data through the same page of a segment.
fn two_users_of_a_page(broken: Broken) {
    const PAGE: usize = 4096;
    check(move || {
        let (bytes, free) = (new_bytes(), Arc::new(Mutex::new(FreeRanges::new(PAGE, PAGE))));
        let pass = {
            let (bytes, free) = (Arc::clone(&bytes), Arc::clone(&free));
            move || {
                let taken = free.lock().unwrap().take(1);
                // Without a range the data would travel in messages.
                let Some(taken) = taken else { return };
                let give_back = || free.lock().unwrap().give_back(taken.offset, 1);
                add(&bytes, 1);
                if broken == Broken::Rule {
                    give_back();
                }
                let ((to_manager, messages), (ended, ends)) = (channel(), channel());
                to_manager.send(Message::Change { after: None }).unwrap();
                to_manager.send(Message::End).unwrap();
                manager(&bytes, &messages, &ended);
                ends.recv().unwrap();
                if broken == Broken::Nothing {
                    give_back();
                }
            }
        };
        let other = thread::spawn(pass.clone());
        pass();
        other.join().unwrap();
        assert!(free.lock().unwrap().is_whole());
        assert!([11, 22].contains(&read(&bytes)), "each has passed its data, or found no room");
    });
}

#[test]
fn a_range_is_reused_only_when_its_command_has_ended() {
    two_users_of_a_page(Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn a_range_that_is_given_back_too_early_is_found_out() {
    two_users_of_a_page(Broken::Rule);
}
