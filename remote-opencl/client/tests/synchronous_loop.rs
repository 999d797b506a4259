//! A program that waits for its commands moves the bytes itself, and the background thread sleeps. This test has
//! its own process, since the background thread serves all tests of a process.
#![allow(dead_code, reason = "the scripted manager can do more than this test needs")]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::cast_possible_truncation,
    reason = "a test that can't go on shall fail"
)]

#[path = "client/scripted_manager.rs"]
mod scripted_manager;

use fpga_client::{Client, Context, Operation, Queue};
use std::sync::Arc;
use std::time::{Duration, Instant};

#[test]
fn a_synchronous_loop_is_driven_by_its_own_thread_alone() {
    let manager = scripted_manager::ScriptedManager::start();
    let client = Client::with_managers(manager.address()).unwrap();
    let device = Arc::clone(&client.platforms()[0].devices()[0]);
    let context = Context::new(&[Arc::clone(&device)]).unwrap();
    let queue = Queue::new(&context, &device, 0).unwrap();
    let before = Client::background_turns();
    let mut times = Vec::new();
    let mut stalls = 0;
    let begin = Instant::now();
    let mut end = begin;
    while begin.elapsed() < Duration::from_millis(500) {
        let begin = Instant::now();
        // On a busy machine this thread may be suspended for so long that it looks idle.
        stalls += u64::from(begin - end > Duration::from_millis(10));
        queue.enqueue(Operation::Marker, &[]).unwrap();
        queue.finish().unwrap();
        end = Instant::now();
        stalls += u64::from(end - begin > Duration::from_millis(10));
        times.push(end - begin);
    }
    times.sort();
    println!("{} iterations, p50 {:?}", times.len(), times[times.len() / 2]);
    assert!(Client::background_turns() - before <= stalls);
}
