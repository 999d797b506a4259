//! The session of a leased slot: its handshake, its tasks, and how it ends.

use crate::scripted_manager::{RingAnswer, ScriptedManager};
use fpga_client::{
    Buffer, ClError, Context, DigestError, HostSource, Initial, Lease, LeaseError, LeasedSession, Notice,
    Operation, Program, Queue,
};
use fpga_test_kit::{patience, until};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const ID: [u8; 16] = [7; 16];

fn lease(manager: &ScriptedManager) -> Lease {
    let address = manager.address().to_owned();
    Lease { address, key: None, id: ID, silence: Duration::from_secs(5) }
}

/// A manager that has the lease.
fn lender() -> ScriptedManager {
    let manager = ScriptedManager::start();
    *manager.script().lease.lock().unwrap() = ID.to_vec();
    manager
}

fn open(manager: &ScriptedManager) -> (LeasedSession, Receiver<Notice>) {
    let (sender, notices) = channel();
    let sender = Mutex::new(sender);
    let session = LeasedSession::open(&lease(manager), move |notice| {
        let _ = sender.lock().unwrap().send(notice);
    });
    (session.unwrap(), notices)
}

fn queue(session: &LeasedSession) -> Arc<Queue> {
    let device = Arc::clone(&session.platforms()[0].devices()[0]);
    let context = Context::new(&[Arc::clone(&device)]).unwrap();
    Queue::new(&context, &device, 0).unwrap()
}

#[test]
fn a_lease_shows_its_secret_and_no_token() {
    let manager = lender();
    let (_session, _notices) = open(&manager);
    let hello = manager.script().hello.lock().unwrap().clone();
    assert_eq!((&hello.lease[..], hello.token.as_str(), hello.resumable), (&ID[..], "", false));
    // The id as a list of numbers, and as a hexadecimal one.
    let logged = format!("{:?}", lease(&manager));
    assert!(!logged.contains("7, 7") && !logged.contains("0707"), "no secret in a log: {logged}");
}

#[test]
fn a_lease_that_the_manager_does_not_know_is_gone_and_an_absent_manager_is_another_error() {
    let mut manager = lender();
    *manager.script().lease.lock().unwrap() = vec![8; 16];
    let error = LeasedSession::open(&lease(&manager), drop).unwrap_err();
    assert!(matches!(&error, LeaseError::Gone(why) if why == "the lease is over"), "{error}");
    manager.kill();
    let error = LeasedSession::open(&lease(&manager), drop).unwrap_err();
    assert!(matches!(error, LeaseError::Connect(_)), "{error}");
}

#[test]
fn each_flush_is_a_task_of_its_own_however_fast_the_manager_is() {
    let manager = lender();
    let (session, _notices) = open(&manager);
    let queue = queue(&session);
    let buffer = Buffer::new(queue.context(), 0, 1 << 20, Initial::Nothing).unwrap();
    for _ in 0..20 {
        // More commands than a program's session holds back from an idle manager.
        for _ in 0..10 {
            queue.enqueue(Operation::Marker, &[]).unwrap();
        }
        let data = HostSource::owned(vec![5; 100]);
        queue.enqueue(Operation::Write { buffer: &buffer, offset: 0, data }, &[]).unwrap();
        let read = queue.read_bytes(&buffer, 0, 200).unwrap();
        queue.flush().unwrap();
        let bytes = read.wait().unwrap();
        assert_eq!((&bytes[..100], &bytes[100..]), (&[5; 100][..], &[0; 100][..]));
    }
    assert_eq!(*manager.script().flushes.lock().unwrap(), [12; 20]);
}

#[test]
fn a_yield_is_told_at_once_and_what_was_flushed_still_ends() {
    let manager = lender();
    let (session, notices) = open(&manager);
    let queue = queue(&session);
    manager.script().hold.store(true, Ordering::SeqCst);
    let marker = queue.enqueue(Operation::Marker, &[]).unwrap();
    queue.flush().unwrap();
    manager.recall();
    assert_eq!(notices.recv_timeout(patience()), Ok(Notice::Yield));
    manager.let_go();
    marker.wait_for_status().unwrap();
}

#[test]
fn a_yield_that_comes_while_the_session_opens_is_told_when_it_is_open() {
    let manager = lender();
    *manager.script().ring.lock().unwrap() = Some(RingAnswer::NoMemory);
    manager.recall();
    let (session, notices) = open(&manager);
    assert_eq!(notices.recv_timeout(patience()), Ok(Notice::Yield));
    queue(&session).finish().unwrap();
}

#[test]
fn a_session_that_does_not_open_ends_at_the_manager_as_well() {
    let manager = lender();
    *manager.script().ring.lock().unwrap() = Some(RingAnswer::Nonsense);
    let error = LeasedSession::open(&lease(&manager), drop).unwrap_err();
    assert!(matches!(error, LeaseError::Connect(_)), "{error}");
    // No other thread of this process drives its connections.
    until("the manager's session ends", || manager.script().sessions.load(Ordering::SeqCst) == 0);
}

#[test]
fn a_lost_manager_is_told_once_and_a_closed_session_tells_nothing() {
    let mut manager = lender();
    let (session, notices) = open(&manager);
    let (closed, silence) = open(&manager);
    closed.close();
    manager.kill();
    assert!(matches!(notices.recv_timeout(patience()), Ok(Notice::Lost(_))));
    drop((session, closed));
    for rest in [notices, silence] {
        assert_eq!(rest.recv_timeout(patience()), Err(RecvTimeoutError::Disconnected));
    }
}

#[test]
fn a_close_from_another_thread_ends_a_wait() {
    let manager = lender();
    let (session, _notices) = open(&manager);
    let queue = queue(&session);
    manager.script().hold.store(true, Ordering::SeqCst);
    let marker = queue.enqueue(Operation::Marker, &[]).unwrap();
    queue.flush().unwrap();
    let waits = std::thread::spawn(move || marker.wait_for_status());
    session.close();
    assert_eq!(waits.join().unwrap(), Err(ClError::OUT_OF_RESOURCES));
}

#[test]
fn a_program_is_made_by_the_digest_of_what_the_manager_has() {
    let manager = lender();
    let (session, _notices) = open(&manager);
    let queue = queue(&session);
    let program = |digest| Program::with_digest(queue.context(), queue.device(), digest);
    assert_eq!(program([1; 32]).unwrap_err(), DigestError::Missing);
    manager.script().binaries.lock().unwrap().insert(vec![1; 32], vec![0]);
    program([1; 32]).unwrap();
}
