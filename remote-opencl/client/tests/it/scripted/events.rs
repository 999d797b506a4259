//! Events: user events, callbacks, profiling times, polling.

use super::Setup;
use fpga_client::{ClError, Event, Operation};
use fpga_test_kit::until;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

#[test]
fn a_user_event_holds_back_what_waits_for_it_and_nothing_else() {
    let setup = Setup::with_properties(0);
    let user = Event::user(&setup.context).unwrap();
    let before = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    let after = setup.queue.enqueue(Operation::Marker, &[Arc::clone(&user)]).unwrap();
    setup.queue.flush().unwrap();
    before.wait().unwrap();
    assert!(after.status() > 0);
    user.set_user_status(0).unwrap();
    after.wait().unwrap();
    assert_eq!(user.set_user_status(0).unwrap_err(), ClError::INVALID_OPERATION);
}

#[test]
fn a_failed_user_event_fails_what_waits_for_it() {
    let setup = Setup::new();
    let user = Event::user(&setup.context).unwrap();
    let command = setup.queue.enqueue(Operation::Marker, &[Arc::clone(&user)]).unwrap();
    user.set_user_status(-7).unwrap();
    assert_eq!(command.wait_for_status().unwrap_err(), ClError(-14));
    assert_eq!(command.wait().unwrap_err(), ClError::EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
    assert_eq!(user.status(), -7);
}

#[test]
fn a_user_event_set_by_another_thread_wakes_the_one_that_waits() {
    let setup = Setup::new();
    let user = Event::user(&setup.context).unwrap();
    let command = setup.queue.enqueue(Operation::Marker, &[Arc::clone(&user)]).unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| command.wait());
        let also_waits = scope.spawn(|| user.wait());
        user.set_user_status(0).unwrap();
        waits.join().unwrap().unwrap();
        also_waits.join().unwrap().unwrap();
    });
}

#[test]
fn callbacks_come_in_the_order_of_the_statuses_without_anybody_waiting() {
    let setup = Setup::new();
    setup.manager.script().hold.store(true, Ordering::SeqCst);
    let event = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    for status in [0, 1, 2] {
        let seen = Arc::clone(&seen);
        event.on_status(status, move |status| seen.lock().unwrap().push(status)).unwrap();
    }
    until("SUBMITTED is seen", || *seen.lock().unwrap() == [2]);
    setup.manager.let_go();
    until("the rest is seen", || seen.lock().unwrap().len() == 3);
    assert_eq!(*seen.lock().unwrap(), [2, 1, 0]);
    let again = Arc::clone(&seen);
    event.on_status(0, move |status| again.lock().unwrap().push(status + 100)).unwrap();
    until("a late callback comes at once", || seen.lock().unwrap().last() == Some(&100));
    assert_eq!(event.on_status(3, |_| ()).unwrap_err(), ClError::INVALID_VALUE);
}

#[test]
fn polling_the_status_is_enough_to_see_the_end() {
    let setup = Setup::new();
    let event = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    until("the event is complete", || event.status() == 0);
}

#[test]
fn times_are_in_order_and_durations_exact() {
    let setup = Setup::new();
    let event = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    assert_eq!(event.profiling().unwrap_err(), ClError::PROFILING_INFO_NOT_AVAILABLE);
    event.wait().unwrap();
    let times = event.profiling().unwrap();
    assert_eq!(times.ended - times.started, 500);
    assert!(times.queued <= times.submitted && times.submitted <= times.started, "{times:?}");
    let user = Event::user(&setup.context).unwrap();
    user.set_user_status(0).unwrap();
    assert_eq!(user.profiling().unwrap_err(), ClError::PROFILING_INFO_NOT_AVAILABLE);
}

#[test]
fn waiting_for_several_events_needs_one_context() {
    let (setup, other) = (Setup::new(), Setup::new());
    let a = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    let b = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    let foreign = other.queue.enqueue(Operation::Marker, &[]).unwrap();
    assert_eq!(Event::wait_all(&[]).unwrap_err(), ClError::INVALID_VALUE);
    assert_eq!(Event::wait_all(&[Arc::clone(&a), foreign]).unwrap_err(), ClError::INVALID_CONTEXT);
    Event::wait_all(&[a, b]).unwrap();
}

#[test]
fn released_events_are_named_to_the_manager() {
    let setup = Setup::new();
    let event = setup.queue.enqueue(Operation::Marker, &[]).unwrap();
    event.wait().unwrap();
    drop(event);
    setup.queue.enqueue(Operation::Marker, &[]).unwrap().wait().unwrap();
    until("the release", || !setup.manager.script().released_events.lock().unwrap().is_empty());
}
