//! A program that waits for its commands moves the bytes itself, and the background thread sleeps.

use super::Setup;
use fpga_client::{Client, Operation};
use std::time::{Duration, Instant};

/// A part of the time for which commands may be outstanding until the background thread drives: an iteration has three pauses
/// at most between two times at which its thread drives.
const STALL: Duration = Duration::from_micros(300);

#[test]
fn a_synchronous_loop_is_driven_by_its_own_thread_alone() {
    let setup = Setup::with_properties(0);
    let before = Client::background_turns();
    // On a busy machine this thread may be suspended for so long that the background thread drives.
    let mut stalls = 1;
    let mut end = Instant::now();
    for _ in 0..5_000 {
        let begin = Instant::now();
        setup.queue.enqueue(Operation::Marker, &[]).unwrap();
        setup.queue.finish().unwrap();
        stalls += u64::from(begin - end > STALL) + u64::from(begin.elapsed() > STALL);
        end = Instant::now();
    }
    let turns = Client::background_turns() - before;
    println!("{turns} turns of the background thread, {stalls} stalls");
    assert!(turns <= stalls, "{turns} turns of the background thread, {stalls} stalls");
}
