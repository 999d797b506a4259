//! Commands and calls are part of the trace of the thread that makes them, for managers that record traces.

use super::Setup;
use crate::scripted_manager::ScriptedManager;
use fpga_client::{Operation, Program, set_trace};
use fpga_protocol::v1::{self, call::Method};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const TRACEPARENT: &[u8] = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// The trace of `TRACEPARENT` as it is sent.
fn trace() -> v1::Trace {
    v1::Trace {
        trace_id: vec![
            0x0a, 0xf7, 0x65, 0x19, 0x16, 0xcd, 0x43, 0xdd, 0x84, 0x48, 0xeb, 0x21, 0x1c, 0x80, 0x31, 0x9c,
        ]
        .into(),
        span_id: vec![0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31].into(),
        state: "vendor=1".to_owned(),
    }
}

/// Enqueues three markers, the second one as a part of a trace; returns the commands that the manager has received.
fn commands(manager: ScriptedManager) -> Vec<v1::Command> {
    let setup = Setup::of(manager, 0);
    for traceparent in [None, Some(TRACEPARENT), None] {
        set_trace(traceparent, b"vendor=1").unwrap();
        drop(setup.queue.enqueue(Operation::Marker, &[]).unwrap());
    }
    setup.queue.finish().unwrap();
    setup.manager.script().commands.lock().unwrap().clone()
}

#[test]
fn a_command_of_a_trace_is_sent_with_it_and_its_end_is_told_by_itself() {
    let manager = ScriptedManager::start();
    manager.script().records_traces.store(true, Ordering::SeqCst);
    let commands = commands(manager);
    let traces: Vec<Option<v1::Trace>> = commands.iter().map(|command| command.trace.clone()).collect();
    assert_eq!(traces, [None, Some(trace()), None]);
    assert!(!commands[1].unwatched);
}

#[test]
fn the_calls_that_make_a_program_of_a_bitstream_are_sent_with_the_trace() {
    let manager = ScriptedManager::start();
    manager.script().records_traces.store(true, Ordering::SeqCst);
    let setup = Setup::of(manager, 0);
    for (traceparent, bitstream) in [(Some(TRACEPARENT), &b"one"[..]), (None, b"two")] {
        set_trace(traceparent, b"vendor=1").unwrap();
        Program::with_binaries(&setup.context, &[(Arc::clone(&setup.device), bitstream)]).unwrap();
    }
    let calls = setup.manager.script().calls.lock().unwrap();
    let makes = |call: &&v1::Call| {
        matches!(call.method, Some(Method::CreateProgramWithBinary(_) | Method::ProvideBinary(_)))
    };
    let traces: Vec<_> = calls.iter().filter(makes).map(|call| call.trace.as_deref().cloned()).collect();
    assert_eq!(traces, [Some(trace()), Some(trace()), None, None]);
}

#[test]
fn a_manager_that_records_no_traces_gets_none() {
    let commands = commands(ScriptedManager::start());
    assert_eq!(commands.len(), 3);
    assert!(commands.iter().all(|command| command.trace.is_none()));
}
