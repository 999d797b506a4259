//! Command queues.

use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, Object, lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, DeviceQueue, Queue};
use crate::platforms::Device;
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::c_void;
use std::sync::{Arc, PoisonError};

/// The values that clGetCommandQueueInfo returns, for either kind of queue.
struct Facts<'a> {
    context: &'a Handle<Context>,
    device: &'a Handle<Device>,
    references: cl::cl_uint,
    properties: u64,
    as_given: &'a [u64],
    /// Size in bytes; only for a queue on the device.
    size: Option<u32>,
}

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
        let mut size = None;
        let mut as_given = Vec::new();
        // SAFETY: the caller's list ends with 0.
        for (key, value) in unsafe { memory::pairs(list) } {
            match u32::try_from(key) {
                Ok(cl::CL_QUEUE_PROPERTIES) => properties = value,
                Ok(cl::CL_QUEUE_SIZE) => size = Some(value),
                _ => return Err(ClError(cl::CL_INVALID_VALUE)),
            }
            as_given.extend([key, value]);
        }
        if !list.is_null() {
            as_given.push(0);
        }
        if properties & cl::CL_QUEUE_ON_DEVICE != 0 {
            return create_on_device(context, device, properties, size, as_given);
        }
        // CL_INVALID_VALUE if CL_QUEUE_SIZE is given for a queue on the host.
        if size.is_some() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        create(context, device, properties, as_given)
    }

    fn clSetDefaultDeviceCommandQueue(
        context: cl::cl_context,
        device: cl::cl_device_id,
        queue: cl::cl_command_queue,
    ) -> status {
        let context = lookup::<Context>(context)?;
        let device = lookup::<Device>(device)?;
        check_device(&context, &device)?;
        // CL_INVALID_OPERATION if device does not support a replaceable default on-device queue.
        const REPLACEABLE: u64 = 2;
        if device.number(cl::CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES) & REPLACEABLE == 0 || !device.claims_3() {
            return Err(ClError(cl::CL_INVALID_OPERATION));
        }
        let queue = lookup::<DeviceQueue>(queue)?;
        if !Arc::ptr_eq(&queue.context, &context) || !Arc::ptr_eq(&queue.device, &device) {
            return Err(ClError(cl::CL_INVALID_COMMAND_QUEUE));
        }
        queue.client.become_default()?;
        set_default(&queue);
        Ok(())
    }

    fn clSetCommandQueueProperty(
        queue: cl::cl_command_queue,
        _properties: cl::cl_command_queue_properties,
        _enable: cl::cl_bool,
        _old: *mut cl::cl_command_queue_properties,
    ) -> status {
        lookup::<Queue>(queue)?;
        // The function was withdrawn in OpenCL 1.1; later implementations refuse it.
        Err(ClError(cl::CL_INVALID_OPERATION))
    }

    fn clRetainCommandQueue(queue: cl::cl_command_queue) -> status {
        retain::<Queue>(queue).or_else(|_| retain::<DeviceQueue>(queue))
    }

    fn clReleaseCommandQueue(queue: cl::cl_command_queue) -> status {
        if release::<DeviceQueue>(queue).is_ok() {
            return Ok(());
        }
        // clReleaseCommandQueue performs an implicit flush to issue any previously queued commands. An error means
        // that the manager is gone, which must not keep the application from releasing the queue.
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
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        if let Ok(queue) = lookup::<DeviceQueue>(queue) {
            let facts = Facts {
                context: &queue.context,
                device: &queue.device,
                references: queue.references(),
                properties: queue.client.properties(),
                as_given: &queue.properties,
                size: Some(queue.size),
            };
            return facts.answer(param, answer);
        }
        let queue = lookup::<Queue>(queue)?;
        let facts = Facts {
            context: &queue.context,
            device: &queue.device,
            references: queue.references(),
            properties: queue.client.properties(),
            as_given: &queue.properties,
            size: None,
        };
        facts.answer(param, answer)
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
    check_device(&context, &device)?;
    // CL_INVALID_VALUE if CL_QUEUE_ON_DEVICE_DEFAULT is given without CL_QUEUE_ON_DEVICE. The 1.x call allows
    // neither.
    if properties & (cl::CL_QUEUE_ON_DEVICE | cl::CL_QUEUE_ON_DEVICE_DEFAULT) != 0 {
        return Err(ClError(cl::CL_INVALID_VALUE));
    }
    let client = client::Queue::new(&context.client, &device.client()?, properties)?;
    Ok(Object::new(Queue { client, context, device, properties: as_given }).as_ptr())
}

/// CL_INVALID_DEVICE if device is not associated with context.
fn check_device(context: &Context, device: &Handle<Device>) -> Result<(), ClError> {
    let own = context.devices.iter().any(|own| Arc::ptr_eq(own, device));
    if own { Ok(()) } else { Err(ClError(cl::CL_INVALID_DEVICE)) }
}

fn create_on_device(
    context: cl::cl_context,
    device: cl::cl_device_id,
    properties: u64,
    size: Option<u64>,
    as_given: Vec<u64>,
) -> Result<*mut c_void, ClError> {
    let context = lookup::<Context>(context)?;
    let device = lookup::<Device>(device)?;
    check_device(&context, &device)?;
    // CL_INVALID_VALUE if CL_QUEUE_ON_DEVICE is set and CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE is not.
    if properties & cl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0 {
        return Err(ClError(cl::CL_INVALID_VALUE));
    }
    // CL_INVALID_QUEUE_PROPERTIES if the device doesn't support queues on the device, or none of that size.
    let largest = device.number(cl::CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE);
    let preferred = device.number(cl::CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE);
    let bytes = size.unwrap_or(preferred);
    let is_possible = device.claims_3() && largest != 0 && bytes <= largest;
    let refused = ClError(cl::CL_INVALID_QUEUE_PROPERTIES);
    let bytes = u32::try_from(bytes).ok().filter(|_| is_possible).ok_or(refused)?;
    let is_default = properties & cl::CL_QUEUE_ON_DEVICE_DEFAULT != 0;
    if is_default {
        // A device has one default queue. A second request returns the same queue, with one more reference.
        let known = default_of(&context, &device);
        if !known.is_null() && retain::<DeviceQueue>(known).is_ok() {
            return Ok(known);
        }
    }
    let asked = if size.is_some() { bytes } else { 0 };
    let client = client::DeviceQueue::new(&context.client, &device.client()?, properties, asked)?;
    let queue = Object::new(DeviceQueue { client, context, device, size: bytes, properties: as_given });
    if is_default {
        set_default(&queue);
    }
    Ok(queue.as_ptr())
}

impl Facts<'_> {
    fn answer(&self, param: cl::cl_command_queue_info, answer: Answer) -> Result<(), ClError> {
        match param {
            cl::CL_QUEUE_CONTEXT => answer.value(self.context.as_ptr()),
            cl::CL_QUEUE_DEVICE => answer.value(self.device.as_ptr()),
            cl::CL_QUEUE_REFERENCE_COUNT => answer.value(self.references),
            cl::CL_QUEUE_PROPERTIES => answer.value(self.properties),
            cl::CL_QUEUE_PROPERTIES_ARRAY => answer.values(self.as_given),
            cl::CL_QUEUE_DEVICE_DEFAULT => answer.value(default_of(self.context, self.device)),
            // CL_INVALID_COMMAND_QUEUE if command_queue is not a valid command-queue for param_name.
            cl::CL_QUEUE_SIZE => answer.value(self.size.ok_or(ClError(cl::CL_INVALID_COMMAND_QUEUE))?),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }
}

/// The default queue on a device of the context; NULL if there is none.
fn default_of(context: &Context, device: &Handle<Device>) -> *mut c_void {
    let defaults = context.default_queues.lock().unwrap_or_else(PoisonError::into_inner);
    let of_device = defaults.iter().find(|(of, _)| *of == device.as_ptr() as usize);
    let queue = of_device.and_then(|(_, queue)| queue.upgrade());
    queue.map_or(std::ptr::null_mut(), |queue| queue.as_ptr())
}

fn set_default(queue: &Handle<DeviceQueue>) {
    let mut defaults = queue.context.default_queues.lock().unwrap_or_else(PoisonError::into_inner);
    let device = queue.device.as_ptr() as usize;
    defaults.retain(|(of, _)| *of != device);
    defaults.push((device, Arc::downgrade(queue)));
}
