//! Timing of a command by callbacks on its event: in device time where the queue has profiling, otherwise in host
//! time.

use crate::bitstreams::Bitstream;
use crate::cl;
use crate::in_flight::{Command, Kind, Reference};
use crate::state::{Layer, guard};
use crate::table::target;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Times the command of `event`, which was just enqueued.
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
        // Before the callback for the end, while the event can't have been released.
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
        // SAFETY: the layer's own reference, if `reference` is one, has not been released.
        unsafe { give_back(event, reference) };
    }
}

/// Whether a callback was registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Called {
    Once,
    Never,
}

type Callback = unsafe extern "C" fn(cl::cl_event, cl::cl_int, *mut c_void);

/// Registers `callback`, with a reference to `command`, for `status` of `event`.
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
    // SAFETY: the event is live by this function's contract. The callbacks below take the reference back, once.
    if unsafe { set(event, status, Some(callback), data) } == cl::CL_SUCCESS {
        return Called::Once;
    }
    // SAFETY: the runtime refused the callback, so no other code has the reference.
    drop(unsafe { Arc::from_raw(data.cast_const().cast::<Command>()) });
    Called::Never
}

unsafe extern "C" fn runs(_event: cl::cl_event, status: cl::cl_int, data: *mut c_void) {
    let now = Instant::now();
    guard(|_| {
        // SAFETY: `on_status` made this reference for this callback alone, which is called once.
        let command = unsafe { Arc::from_raw(data.cast_const().cast::<Command>()) };
        if status == cl::CL_RUNNING {
            // Only the first report counts.
            let _ = command.running.set(now);
        }
    });
}

unsafe extern "C" fn completed(event: cl::cl_event, status: cl::cl_int, data: *mut c_void) {
    let now = Instant::now();
    guard(|layer| {
        // SAFETY: `on_status` made this reference for this callback alone, which is called once.
        let command = unsafe { Arc::from_raw(data.cast_const().cast::<Command>()) };
        layer.in_flight.ended(&command);
        if status == cl::CL_COMPLETE {
            // SAFETY: the runtime keeps an event alive during its callbacks.
            let device = unsafe { device_time(event) };
            let began = layer.in_flight.began(&command, now);
            // A device's clock may be wrong, but a command never runs for longer than since it was enqueued.
            let took = device.unwrap_or(now - began).min(now.saturating_duration_since(command.enqueued));
            layer.reports.ended(&command, took, &layer.in_flight);
        }
        layer.in_flight.reported();
        // SAFETY: the layer's own reference, if there is one, has not been released.
        unsafe { give_back(event, command.reference) };
    });
}

/// Duration of a command by the device's clock; `None` if it can't be read.
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
/// `event` is live, and the layer's own reference, if `reference` is one, has not been released.
unsafe fn give_back(event: cl::cl_event, reference: Reference) {
    if reference == Reference::Layer
        && let Some(release) = target().clReleaseEvent
    {
        // SAFETY: the layer's own reference, by this function's contract.
        unsafe { release(event) };
    }
}
