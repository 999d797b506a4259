//! Timing a command: callbacks on its event, device time where the queue has it, else the host's.

use crate::bitstreams::Bitstream;
use crate::cl;
use crate::in_flight::{Command, Kind, Reference};
use crate::state::{Layer, guard};
use crate::table::target;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Times the command behind `event`, which was just enqueued.
///
/// # Safety
/// `event` is a live event of `queue`, and `queue` is live.
pub unsafe fn watch(
    layer: &'static Layer,
    queue: cl::cl_command_queue,
    event: cl::cl_event,
    (kind, bitstream): (Kind, Arc<Bitstream>),
    enqueued: Instant,
    reference: Reference,
) {
    let command = layer.in_flight.begin(kind, bitstream, enqueued, reference);
    // SAFETY: the queue is live by this function's contract.
    if kind == Kind::Kernel || !unsafe { has_profiling(queue) } {
        // First, while the event can't have been given back.
        // SAFETY: the event is live by this function's contract.
        unsafe { on_status(event, cl::CL_RUNNING, runs, &command) };
    }
    if kind == Kind::Kernel {
        layer.tick();
    }
    // SAFETY: as above.
    if unsafe { on_status(event, cl::CL_COMPLETE, completed, &command) } == Called::Never {
        layer.in_flight.ended(&command);
        layer.in_flight.reported();
        // SAFETY: the reference is the one that we asked for.
        unsafe { give_back(event, reference) };
    }
}

/// Whether a callback will come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Called {
    Once,
    Never,
}

type Callback = unsafe extern "C" fn(cl::cl_event, cl::cl_int, *mut c_void);

/// Has `callback` called with a reference to `command`.
///
/// # Safety
/// `event` is live.
unsafe fn on_status(
    event: cl::cl_event,
    status: cl::cl_int,
    callback: Callback,
    command: &Arc<Command>,
) -> Called {
    let Some(set) = target().clSetEventCallback else { return Called::Never };
    let data = Arc::into_raw(Arc::clone(command)).cast_mut().cast();
    // SAFETY: the event is live by this function's contract; the callbacks below take the data back, once.
    if unsafe { set(event, status, Some(callback), data) } == cl::CL_SUCCESS {
        return Called::Once;
    }
    // SAFETY: the runtime refused it, so nobody else has it.
    drop(unsafe { Arc::from_raw(data.cast_const().cast::<Command>()) });
    Called::Never
}

unsafe extern "C" fn runs(_event: cl::cl_event, status: cl::cl_int, data: *mut c_void) {
    let now = Instant::now();
    guard(|_| {
        // SAFETY: the data of `on_status`, given to this callback alone.
        let command = unsafe { Arc::from_raw(data.cast_const().cast::<Command>()) };
        if status == cl::CL_RUNNING {
            // The first word on it counts.
            let _ = command.running.set(now);
        }
    });
}

unsafe extern "C" fn completed(event: cl::cl_event, status: cl::cl_int, data: *mut c_void) {
    let now = Instant::now();
    guard(|layer| {
        // SAFETY: the data of `on_status`, given to this callback alone.
        let command = unsafe { Arc::from_raw(data.cast_const().cast::<Command>()) };
        layer.in_flight.ended(&command);
        if status == cl::CL_COMPLETE {
            // SAFETY: the runtime keeps an event alive for its callbacks.
            let device = unsafe { device_time(event) };
            let began = layer.in_flight.began(&command, now);
            // A device's clock can be odd; it never worked for longer than the command was there.
            let took = device.unwrap_or(now - began).min(now.saturating_duration_since(command.enqueued));
            layer.reports.ended(&command, took, &layer.in_flight);
        }
        layer.in_flight.reported();
        // SAFETY: the reference is the one that we asked for.
        unsafe { give_back(event, command.reference) };
    });
}

/// How long a command ran by the device's clock.
///
/// # Safety
/// `event` is live.
unsafe fn device_time(event: cl::cl_event) -> Option<Duration> {
    let stamp = |what| -> Option<u64> {
        let mut value = 0_u64;
        let info = target().clGetEventProfilingInfo?;
        let room = (&raw mut value).cast();
        // SAFETY: the event is live by this function's contract, and there is room for the value.
        let code = unsafe { info(event, what, size_of::<u64>(), room, std::ptr::null_mut()) };
        (code == cl::CL_SUCCESS).then_some(value)
    };
    let (start, end) = (stamp(cl::CL_PROFILING_COMMAND_START)?, stamp(cl::CL_PROFILING_COMMAND_END)?);
    (start > 0 && end >= start).then(|| Duration::from_nanos(end - start))
}

/// # Safety
/// `queue` is live.
unsafe fn has_profiling(queue: cl::cl_command_queue) -> bool {
    let Some(info) = target().clGetCommandQueueInfo else { return false };
    let mut properties: cl::cl_command_queue_properties = 0;
    let room = (&raw mut properties).cast();
    // SAFETY: the queue is live by this function's contract, and there is room for the value.
    let code =
        unsafe { info(queue, cl::CL_QUEUE_PROPERTIES, size_of_val(&properties), room, std::ptr::null_mut()) };
    code == cl::CL_SUCCESS && properties & cl::CL_QUEUE_PROFILING_ENABLE != 0
}

/// # Safety
/// `event` is live, and the reference that we asked for was not given back.
unsafe fn give_back(event: cl::cl_event, reference: Reference) {
    if reference == Reference::Layer
        && let Some(release) = target().clReleaseEvent
    {
        // SAFETY: ours, by this function's contract.
        unsafe { release(event) };
    }
}
