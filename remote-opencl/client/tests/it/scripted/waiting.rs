//! The thread that drives is a thread that waits, or the background thread if none does.

use super::Setup;
use crate::scripted_manager::ScriptedManager;
use fpga_client::{Client, Operation};
use fpga_test_kit::{Proxy, Way, patience, until};
use std::sync::atomic::Ordering;
use std::time::Duration;

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
    receiver.recv_timeout(patience()).unwrap();
    assert!(Client::background_turns() > 0);
}

#[test]
fn two_sessions_are_driven_by_one_thread() {
    let (a, b) = (Setup::new(), Setup::new());
    for setup in [&a, &b] {
        setup.manager.script().hold.store(true, Ordering::SeqCst);
    }
    let first = a.queue.enqueue(Operation::Marker, &[]).unwrap();
    a.queue.flush().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| b.queue.enqueue(Operation::Marker, &[]).and_then(|_| b.queue.finish()));
        until("the second session's command", || !b.manager.script().commands.lock().unwrap().is_empty());
        a.manager.let_go();
        // While a thread waits, a query of an event moves no bytes.
        until("the other session's event", || first.status() == 0);
        assert!(!waits.is_finished());
        b.manager.let_go();
        waits.join().unwrap().unwrap();
    });
    // A thread names itself when it first runs.
    until("the driver's name", || threads("fpga-driver") > 0);
    assert_eq!(threads("fpga-driver"), 1);
}

/// Number of threads of this process with this name.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().map(|task| task.unwrap().path().join("comm"));
    // A thread may end in between.
    tasks.filter(|path| std::fs::read_to_string(path).is_ok_and(|text| text.trim() == name)).count()
}

#[test]
fn an_idle_program_answers_its_manager() {
    let manager = ScriptedManager::start_with(Some(Duration::from_millis(20)));
    let proxy = Proxy::to(manager.address(), &[]);
    let client = Client::with_managers(&format!("tcp://{}", proxy.address())).unwrap();
    assert_eq!(client.platforms().len(), 1);
    // A program without objects sends nothing but answers of 17 bytes.
    let before = proxy.forwarded(Way::ToServer);
    until("ten answers", || proxy.forwarded(Way::ToServer) >= before + 170);
}
