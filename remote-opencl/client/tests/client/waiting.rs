//! The thread that drives is a thread that waits, or the background thread if none does.

use crate::Setup;
use crate::scripted_manager::eventually;
use fpga_client::{Client, Operation};
use std::sync::Arc;

#[test]
fn threads_that_wait_at_the_same_time_all_get_their_answers() {
    let setup = Setup::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let queue = fpga_client::Queue::new(&setup.context, &setup.device, 0).unwrap();
                for _ in 0..200 {
                    queue.enqueue(Operation::Marker, &[]).unwrap();
                    queue.finish().unwrap();
                }
            });
        }
    });
}

#[test]
fn an_event_completes_although_nobody_waits() {
    let setup = Setup::new();
    let (sender, receiver) = std::sync::mpsc::channel();
    let event = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    event.on_status(0, move |_| sender.send(()).unwrap()).unwrap();
    receiver.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
    assert!(Client::background_turns() > 0);
}

#[test]
fn two_sessions_are_driven_by_one_thread() {
    let (a, b) = (Setup::new(), Setup::new());
    let first = a.queue.enqueue(Operation::Marker, &[]).unwrap();
    a.queue.flush().unwrap();
    b.queue.enqueue(Operation::Marker, &[]).unwrap();
    b.queue.finish().unwrap();
    eventually("the other session's event", || first.status() == 0);
    drop(Arc::clone(&first));
}
