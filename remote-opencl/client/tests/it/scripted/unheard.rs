//! Failures that a program was not told yet: a manager refuses a command long after its enqueue call has returned.
//! Barriers stand for the launches that the manager refuses.

use super::{Setup, target};
use fpga_client::{Buffer, ClError, Event, Operation};
use fpga_test_kit::{patience, until};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const REFUSED: ClError = ClError::INVALID_WORK_GROUP_SIZE;

/// A setup whose queue had a command that was refused and has ended, and whose event was dropped.
fn with_a_failure() -> (Setup, Arc<Buffer>) {
    let setup = Setup::new();
    let buffer = setup.buffer(64);
    refuse(&setup);
    (setup, buffer)
}

fn refuse(setup: &Setup) {
    setup.manager.script().barriers_fail_with.store(REFUSED.0, Ordering::SeqCst);
    setup.queue.enqueue(Operation::Barrier, &[]).unwrap();
    setup.queue.flush().unwrap();
    // The session's messages keep their order, so the refused command has ended when a later one of another queue
    // has.
    let other = fpga_client::Queue::new(&setup.context, &setup.device, 0).unwrap();
    other.enqueue(Operation::Marker, &[]).unwrap().wait().unwrap();
}

fn read(setup: &Setup, buffer: &Arc<Buffer>) -> Result<(), ClError> {
    let mut bytes = [0; 64];
    let read = Operation::Read { buffer, offset: 0, target: target(&mut bytes) };
    setup.queue.enqueue(read, &[]).unwrap().wait_for_status()
}

#[test]
fn a_finish_tells_a_failure_once() {
    let (setup, _) = with_a_failure();
    assert_eq!(setup.queue.finish(), Err(REFUSED));
    assert_eq!(setup.queue.finish(), Ok(()));
}

#[test]
fn a_finish_tells_the_first_of_several() {
    let (setup, _) = with_a_failure();
    setup.manager.script().barriers_fail_with.store(-5, Ordering::SeqCst);
    setup.queue.enqueue(Operation::Barrier, &[]).unwrap();
    assert_eq!(setup.queue.finish(), Err(REFUSED));
    assert_eq!(setup.queue.finish(), Ok(()));
}

#[test]
fn a_blocking_read_and_a_blocking_map_tell_a_failure_before_they_give_stale_bytes() {
    let (setup, buffer) = with_a_failure();
    assert_eq!(read(&setup, &buffer), Err(REFUSED));
    assert_eq!(read(&setup, &buffer), Ok(()));
    refuse(&setup);
    let map =
        || setup.queue.map(&buffer, fpga_client::cl::MAP_READ, 0, 64, &[]).unwrap().event.wait_for_status();
    assert_eq!(map(), Err(REFUSED));
    assert_eq!(map(), Ok(()));
}

#[test]
fn a_wait_for_a_later_command_of_the_queue_tells_a_failure() {
    let (setup, _) = with_a_failure();
    let marker = || setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    assert_eq!(Event::wait_all(&[marker()]), Err(ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST));
    assert_eq!(Event::wait_all(&[marker()]), Ok(()));
}

#[test]
fn a_failure_is_not_told_to_who_has_seen_it_in_the_commands_own_event() {
    let setup = Setup::new();
    setup.manager.script().barriers_fail_with.store(REFUSED.0, Ordering::SeqCst);
    let refused = || setup.queue.enqueue(Operation::Barrier, &[]).unwrap();
    assert_eq!(refused().wait(), Err(ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST));
    assert_eq!(setup.queue.finish(), Ok(()));
    let event = refused();
    until("the status", || event.status() == REFUSED.0);
    assert_eq!(setup.queue.finish(), Ok(()));
    let (sender, receiver) = std::sync::mpsc::channel();
    refused().on_status(0, move |status| sender.send(status).unwrap()).unwrap();
    assert_eq!(receiver.recv_timeout(patience()).unwrap(), REFUSED.0);
    assert_eq!(setup.queue.finish(), Ok(()));
}

#[test]
fn what_the_program_itself_made_fail_by_a_user_event_is_no_news_to_it() {
    let setup = Setup::new();
    let user = Event::user(&setup.context).unwrap();
    let waits = setup.queue.enqueue(Operation::Marker, &[Arc::clone(&user)]).unwrap();
    user.set_user_status(-1).unwrap();
    assert_eq!(setup.queue.finish(), Ok(()));
    assert_eq!(waits.wait(), Err(ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST));
}

#[test]
fn another_queue_does_not_tell_it() {
    let (setup, _) = with_a_failure();
    let other = fpga_client::Queue::new(&setup.context, &setup.device, 0).unwrap();
    other.enqueue(Operation::Marker, &[]).unwrap();
    assert_eq!(other.finish(), Ok(()));
    assert_eq!(setup.queue.finish(), Err(REFUSED));
}
