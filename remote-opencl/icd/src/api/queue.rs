//! Command queues.

use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Object, lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, Queue};
use crate::platforms::Device;
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::c_void;
use std::sync::Arc;

entry_points! {
    fn clCreateCommandQueue(
        context: cl::cl_context,
        device: cl::cl_device_id,
        properties: cl::cl_command_queue_properties,
    ) -> pointer {
        create(context, device, properties, Vec::new())
    }

    fn clCreateCommandQueueWithProperties(
        context: cl::cl_context,
        device: cl::cl_device_id,
        list: *const cl::cl_queue_properties,
    ) -> pointer {
        let mut properties = 0;
        let mut as_given = Vec::new();
        // SAFETY: the caller's list ends with 0.
        for (key, value) in unsafe { memory::pairs(list) } {
            match u32::try_from(key) {
                Ok(cl::CL_QUEUE_PROPERTIES) => properties = value,
                // Sizes are for device queues, of which there are none.
                Ok(cl::CL_QUEUE_SIZE) => return Err(ClError(cl::CL_INVALID_QUEUE_PROPERTIES)),
                _ => return Err(ClError(cl::CL_INVALID_VALUE)),
            }
            as_given.extend([key, value]);
        }
        if !list.is_null() {
            as_given.push(0);
        }
        create(context, device, properties, as_given)
    }

    fn clRetainCommandQueue(queue: cl::cl_command_queue) -> status {
        retain::<Queue>(queue)
    }

    fn clReleaseCommandQueue(queue: cl::cl_command_queue) -> status {
        // clReleaseCommandQueue performs an implicit flush to issue any previously queued commands. That its manager is
        // gone doesn't keep an application from releasing.
        let _ = lookup::<Queue>(queue)?.client.flush();
        release::<Queue>(queue)
    }

    fn clGetCommandQueueInfo(
        queue: cl::cl_command_queue,
        param: cl::cl_command_queue_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let queue = lookup::<Queue>(queue)?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_QUEUE_CONTEXT => answer.value(queue.context.as_ptr()),
            cl::CL_QUEUE_DEVICE => answer.value(queue.device.as_ptr()),
            cl::CL_QUEUE_REFERENCE_COUNT => answer.value(queue.references()),
            cl::CL_QUEUE_PROPERTIES => answer.value(queue.client.properties()),
            cl::CL_QUEUE_PROPERTIES_ARRAY => answer.values(&queue.properties),
            // There is no queue on the device.
            cl::CL_QUEUE_DEVICE_DEFAULT => answer.value(std::ptr::null_mut::<c_void>()),
            // CL_INVALID_COMMAND_QUEUE if command_queue is not a valid command-queue for param_name.
            cl::CL_QUEUE_SIZE => Err(ClError(cl::CL_INVALID_COMMAND_QUEUE)),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }

    fn clFlush(queue: cl::cl_command_queue) -> status {
        lookup::<Queue>(queue)?.client.flush()
    }

    fn clFinish(queue: cl::cl_command_queue) -> status {
        lookup::<Queue>(queue)?.client.finish()
    }
}

fn create(
    context: cl::cl_context,
    device: cl::cl_device_id,
    properties: u64,
    as_given: Vec<u64>,
) -> Result<*mut c_void, ClError> {
    let context = lookup::<Context>(context)?;
    let device = lookup::<Device>(device)?;
    // CL_INVALID_DEVICE if device is not associated with context.
    if !context.devices.iter().any(|own| Arc::ptr_eq(own, &device)) {
        return Err(ClError(cl::CL_INVALID_DEVICE));
    }
    // Queues on the device need CL_DEVICE_ENQUEUE capabilities, which we don't have.
    if properties & (cl::CL_QUEUE_ON_DEVICE | cl::CL_QUEUE_ON_DEVICE_DEFAULT) != 0 {
        return Err(ClError(cl::CL_INVALID_QUEUE_PROPERTIES));
    }
    let client = client::Queue::new(&context.client, &device.client()?, properties)?;
    Ok(Object::new(Queue { client, context, device, properties: as_given }).as_ptr())
}
