//! Launches whose events nobody has: the client says so, does not release the events, and takes their ends with that
//! of a later command.

use super::Setup;
use crate::scripted_manager::ScriptedManager;
use fpga_client::{ArgValue, Buffer, Event, Kernel, Operation, Program, Queue, cl};
use fpga_test_kit::{patience, until};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A kernel, and the buffer that is its argument.
fn kernel(setup: &Setup) -> (Arc<Kernel>, Arc<Buffer>) {
    let program = Program::with_source(&setup.context, b"kernel void k() {}".to_vec()).unwrap();
    program.build(&[], "").unwrap();
    let kernel = Kernel::new(&program, "k").unwrap();
    let buffer = setup.buffer(64);
    kernel.set_arg(0, ArgValue::Buffer(Arc::clone(&buffer))).unwrap();
    kernel.set_arg(1, ArgValue::Scalar(&1i32.to_le_bytes())).unwrap();
    (kernel, buffer)
}

fn launch(queue: &Arc<Queue>, kernel: &Arc<Kernel>) -> Arc<Event> {
    let range = Operation::NdRange { kernel, offset: &[], global: &[16], local: &[] };
    queue.enqueue(range, &[]).unwrap()
}

/// Whether each command that the manager has received went unwatched.
fn unwatched(setup: &Setup) -> Vec<bool> {
    let commands = setup.manager.script().commands.lock().unwrap();
    commands.iter().map(|command| command.unwatched).collect()
}

#[test]
fn launches_whose_events_were_given_to_nobody_end_with_the_next_command() {
    let setup = Setup::with_properties(0);
    let (kernel, _buffer) = kernel(&setup);
    for _ in 0..3 {
        drop(launch(&setup.queue, &kernel));
        drop(launch(&setup.queue, &kernel));
        let kept = launch(&setup.queue, &kernel);
        setup.queue.finish().unwrap();
        assert_eq!(kept.status(), cl::COMPLETE);
    }
    assert_eq!(unwatched(&setup), [true, true, false].repeat(3));
    // The events that were not told of by themselves need no release.
    setup.queue.flush().unwrap();
    let released = || setup.manager.script().released_events.lock().unwrap().clone();
    let commands = setup.manager.script().commands.lock().unwrap().clone();
    let watched: Vec<u64> =
        commands.iter().filter(|command| !command.unwatched).map(|command| command.event).collect();
    until("the releases", || released().len() >= watched.len());
    assert_eq!(released(), watched);
}

#[test]
fn a_launch_is_watched_whose_event_has_a_callback() {
    let setup = Setup::with_properties(0);
    let (kernel, _buffer) = kernel(&setup);
    let (sender, receiver) = std::sync::mpsc::channel();
    // The callback sends the launch, and another event of the queue follows.
    setup.manager.script().hold.store(true, Ordering::SeqCst);
    drop(launch(&setup.queue, &kernel));
    launch(&setup.queue, &kernel).on_status(0, move |status| sender.send(status).unwrap()).unwrap();
    drop(launch(&setup.queue, &kernel));
    setup.manager.let_go();
    setup.queue.finish().unwrap();
    assert_eq!(receiver.recv_timeout(patience()).unwrap(), cl::COMPLETE);
    assert_eq!(unwatched(&setup), [true, false, true]);
}

#[test]
fn launches_are_watched_whose_times_can_be_read_or_that_have_no_order() {
    for properties in [cl::QUEUE_PROFILING_ENABLE, cl::QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE] {
        let setup = Setup::with_properties(properties);
        let (kernel, _buffer) = kernel(&setup);
        for _ in 0..3 {
            drop(launch(&setup.queue, &kernel));
        }
        setup.queue.finish().unwrap();
        assert_eq!(unwatched(&setup), [false; 3]);
    }
}

#[test]
fn a_manager_that_does_not_know_unwatched_commands_gets_none() {
    let manager = ScriptedManager::start();
    manager.script().knows_no_unwatched.store(true, Ordering::SeqCst);
    let setup = Setup::of(manager, 0);
    let (kernel, _buffer) = kernel(&setup);
    for _ in 0..3 {
        drop(launch(&setup.queue, &kernel));
    }
    setup.queue.finish().unwrap();
    assert_eq!(unwatched(&setup), [false; 3]);
}
