//! Managers that are dead, die, or break the protocol cause errors at once, and no program hangs.

use super::{Setup, target};
use crate::scripted_manager::ScriptedManager;
use fpga_client::{Buffer, ClError, Client, Event, Initial, Operation, Queue};
use fpga_protocol::v1::{self, server_message};
use fpga_test_kit::{Proxy, patience, until};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Time for which a client does not try a manager again that it could not reach.
const FAILURE_REMEMBERED: Duration = Duration::from_secs(5);

#[test]
fn a_manager_that_dies_fails_what_is_outstanding_and_what_comes_later() {
    let mut setup = Setup::new();
    let buffer = setup.buffer(100_000);
    setup.manager.script().hold.store(true, Ordering::SeqCst);
    let user = Event::user(&setup.context).unwrap();
    let sent = setup.queue.enqueue(Operation::Marker, &[user]).unwrap();
    setup.queue.flush().unwrap();
    let waits = std::thread::spawn({
        let sent = Arc::clone(&sent);
        move || sent.wait_for_status()
    });
    let not_sent = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    setup.manager.kill();
    assert_eq!(waits.join().unwrap(), Err(ClError::OUT_OF_RESOURCES));
    assert_eq!(not_sent.wait_for_status(), Err(ClError::OUT_OF_RESOURCES));
    assert!(sent.status() < 0);
    let mut bytes = vec![0; 100_000];
    let read = Operation::Read { buffer: &buffer, offset: 0, target: target(&mut bytes) };
    assert_eq!(setup.queue.enqueue(read, &[]).unwrap_err(), ClError::OUT_OF_RESOURCES);
    assert_eq!(setup.queue.finish(), Err(ClError::OUT_OF_RESOURCES));
    assert_eq!(setup.queue.flush(), Err(ClError::OUT_OF_RESOURCES));
    assert_eq!(
        Buffer::new(&setup.context, 0, 4, Initial::Nothing).unwrap_err(),
        ClError::DEVICE_NOT_AVAILABLE
    );
    assert_eq!(Queue::new(&setup.context, &setup.device, 0).unwrap_err(), ClError::DEVICE_NOT_AVAILABLE);
    assert!(!setup.device.is_available());
    assert!(setup.client.platforms().is_empty());
}

#[test]
fn a_call_to_a_manager_that_died_unnoticed_fails() {
    let mut setup = Setup::new();
    setup.manager.kill();
    let program = fpga_client::Program::with_source(&setup.context, b"x".to_vec());
    let built = program.and_then(|program| program.build(&[], ""));
    assert_eq!(built, Err(ClError::DEVICE_NOT_AVAILABLE));
}

#[test]
fn a_large_write_to_a_manager_that_died_fails() {
    let mut setup = Setup::new();
    let buffer = setup.buffer(64 << 20);
    setup.queue.finish().unwrap();
    setup.manager.kill();
    let bytes = vec![1u8; 64 << 20];
    let write = Operation::Write { buffer: &buffer, offset: 0, data: super::source(&bytes) };
    let result = setup.queue.enqueue(write, &[]).and_then(|event| event.wait_for_status());
    assert_eq!(result, Err(ClError::OUT_OF_RESOURCES));
}

#[test]
fn user_events_still_wake_who_waits_when_the_manager_is_gone() {
    let mut setup = Setup::new();
    let user = Event::user(&setup.context).unwrap();
    setup.manager.kill();
    let waits = std::thread::spawn({
        let user = Arc::clone(&user);
        move || user.wait()
    });
    user.set_user_status(0).unwrap();
    waits.join().unwrap().unwrap();
    let marker = setup.queue.enqueue(Operation::Marker, &[]);
    assert!(marker.and_then(|marker| marker.wait_for_status()).is_err());
    assert_eq!(Event::user(&setup.context).map(|_| ()), Err(ClError::DEVICE_NOT_AVAILABLE));
}

#[test]
fn callbacks_hear_of_a_manager_that_dies() {
    let mut setup = Setup::new();
    setup.manager.script().hold.store(true, Ordering::SeqCst);
    let event = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    event.on_status(0, move |status| sender.send(status).unwrap()).unwrap();
    setup.manager.kill();
    assert_eq!(receiver.recv_timeout(patience()).unwrap(), -5);
}

#[test]
fn managers_that_are_not_there_cost_little_and_hide_nobody() {
    let setup = Setup::new();
    let mut gone = ScriptedManager::start();
    gone.kill();
    let dead = Proxy::to(gone.address(), &[]);
    let (alive, dead_address) = (setup.manager.address(), dead.address());
    let list = format!("unix:/nonexistent/dm.sock,{alive},tcp://{dead_address},tcp://127.0.0.1:1");
    let client = Client::with_managers(&list).unwrap();
    let begin = Instant::now();
    assert_eq!((client.platforms().len(), client.platforms().len()), (1, 1));
    let is_remembered = dead.connections() == 1;
    assert!(is_remembered || begin.elapsed() > FAILURE_REMEMBERED, "{} attempts", dead.connections());
}

#[test]
fn a_manager_that_breaks_the_protocol_is_left() {
    let chunk = |transfer, offset| {
        server_message::Kind::Chunk(v1::Chunk { transfer, length: 8, offset, data: vec![0; 8].into() })
    };
    let wrong_data = |event| {
        let form = Some(v1::data::Form::Inline(vec![1, 2, 3].into()));
        let data = Some(v1::Data { form });
        let completion = v1::Completion { event, data, ended_ns: 9, ..v1::Completion::default() };
        server_message::Kind::Completions(v1::Completions { completions: vec![completion] })
    };
    // The ids of the read below are small. Some of these messages name the read, others name nothing.
    let mut messages = vec![chunk(999, 0), chunk(1 << 63 | 4, 3), chunk(1 << 63 | 4, u64::MAX)];
    messages.extend((1..12).map(|event| chunk(event, 4)));
    for kind in messages {
        let setup = Setup::new();
        let buffer = setup.buffer(8);
        let message = v1::ServerMessage { kind: Some(kind.clone()) };
        *setup.manager.script().instead.lock().unwrap() = Some(message);
        let mut bytes = [0; 8];
        let read = Operation::Read { buffer: &buffer, offset: 0, target: target(&mut bytes) };
        let result = setup.queue.enqueue(read, &[]).unwrap().wait_for_status();
        assert_eq!(result, Err(ClError::OUT_OF_RESOURCES), "{kind:?}");
    }
    let setup = Setup::new();
    let buffer = setup.buffer(8);
    let mut bytes = [0; 8];
    setup.manager.script().hold.store(true, Ordering::SeqCst);
    let read = Operation::Read { buffer: &buffer, offset: 0, target: target(&mut bytes) };
    let event = setup.queue.enqueue(read, &[]).unwrap();
    setup.queue.flush().unwrap();
    until("the read arrives", || !setup.manager.script().commands.lock().unwrap().is_empty());
    let id = setup.manager.script().commands.lock().unwrap()[0].event;
    *setup.manager.script().instead.lock().unwrap() = Some(v1::ServerMessage { kind: Some(wrong_data(id)) });
    setup.manager.let_go();
    assert_eq!(event.wait_for_status(), Err(ClError::OUT_OF_RESOURCES));
    assert_eq!(bytes, [0; 8], "nothing of data that doesn't fit is used");
}

#[test]
fn inside_a_tokio_runtime_a_thread_waits_while_another_drives() {
    let setup = Setup::new();
    let buffer = setup.buffer(1 << 20);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let event = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
        event.wait().unwrap();
        setup.queue.enqueue(Operation::Marker, &[]).unwrap();
        setup.queue.finish().unwrap();
        setup.queue.flush().unwrap();
        let mut bytes = vec![1; 1 << 20];
        let read = Operation::Read { buffer: &buffer, offset: 0, target: target(&mut bytes) };
        setup.queue.enqueue(read, &[]).unwrap().wait_for_status().unwrap();
        assert_eq!(bytes, vec![0; 1 << 20], "nothing is in flight any more");
    });
}
