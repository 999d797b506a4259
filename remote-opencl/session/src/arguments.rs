//! The arguments of kernels, as messages name them.

use crate::context::Context;
use crate::kernel::Argument;
use crate::objects::Objects;
use fpga_protocol::v1::{self, kernel_arg::Value};
use fpga_vendor::{ClError, ClResult};
use opencl_sys::{CL_INVALID_ARG_VALUE, CL_INVALID_DEVICE_QUEUE, CL_INVALID_MEM_OBJECT, CL_INVALID_SAMPLER};
use std::sync::Arc;

/// Maximum number of bytes of an argument by value. The largest type of the standard has 128 bytes; structures may be
/// longer.
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// The argument that a value of a message names, for a kernel of `context`.
///
/// # Errors
/// The error of the object that the value names; the standard's if the value is no argument.
pub fn resolve(value: Option<Value>, objects: &Objects, context: &Arc<Context>) -> ClResult<Argument> {
    let of_context = |other: &Arc<Context>, code| {
        if Arc::ptr_eq(other, context) { Ok(()) } else { Err(ClError(code)) }
    };
    match value {
        // Copied: a slice would keep the whole message in memory.
        Some(Value::Scalar(bytes)) if bytes.len() <= MAX_VALUE_BYTES => {
            Ok(Argument::Value(bytes.as_ref().into()))
        }
        Some(Value::Scalar(_)) => Err(ClError::INVALID_ARG_SIZE),
        Some(Value::Buffer(id)) => {
            let buffer = objects.buffer(id)?;
            of_context(&buffer.context, CL_INVALID_MEM_OBJECT)?;
            Ok(Argument::Buffer(buffer))
        }
        Some(Value::Image(id)) => {
            let image = objects.image(id)?;
            of_context(&image.context, CL_INVALID_MEM_OBJECT)?;
            Ok(Argument::Image(image))
        }
        Some(Value::Sampler(id)) => {
            let sampler = objects.sampler(id)?;
            of_context(&sampler.context, CL_INVALID_SAMPLER)?;
            Ok(Argument::Sampler(sampler))
        }
        Some(Value::Pipe(id)) => {
            let pipe = objects.pipe(id)?;
            of_context(&pipe.context, CL_INVALID_MEM_OBJECT)?;
            Ok(Argument::Pipe(pipe))
        }
        Some(Value::DeviceQueue(id)) => {
            let queue = objects.device_queue(id)?;
            of_context(&queue.context, CL_INVALID_DEVICE_QUEUE)?;
            Ok(Argument::DeviceQueue(queue))
        }
        Some(Value::Pointer(v1::Pointer { buffer, offset })) => {
            let buffer = objects.buffer(buffer)?;
            of_context(&buffer.context, CL_INVALID_ARG_VALUE)?;
            Argument::pointer(buffer, offset)
        }
        Some(Value::NullOfSize(size)) => {
            usize::try_from(size).map(Argument::Null).map_err(|_| ClError::INVALID_ARG_SIZE)
        }
        None => Err(ClError::INVALID_ARG_VALUE),
    }
}
