//! A kernel's arguments: the values set, and the objects that a launch keeps alive.

use crate::error::{ClError, Result};
use crate::objects::buffer::Buffer;
use crate::objects::context::Context;
use crate::objects::device_queue::DeviceQueue;
use crate::objects::image::Image;
use crate::objects::kernel_info::ArgKind;
use crate::objects::pipe::Pipe;
use crate::objects::sampler::Sampler;
use crate::objects::usm::{Allocation, IndirectLaunch};
use bytes::Bytes;
use fpga_protocol::v1::{self, kernel_arg};
use std::sync::{Arc, Weak};

/// Size in bytes of a `cl_mem` on the host, which `clSetKernelArg` gets for a buffer.
const HANDLE_BYTES: u64 = 8;

/// The value of an argument.
#[derive(Debug, Clone)]
pub enum ArgValue<'a> {
    /// Bytes by value; never a handle.
    Scalar(&'a [u8]),
    /// A buffer.
    Buffer(Arc<Buffer>),
    /// An image.
    Image(Arc<Image>),
    /// A sampler.
    Sampler(Arc<Sampler>),
    /// A pipe.
    Pipe(Arc<Pipe>),
    /// A queue on the device.
    DeviceQueue(Arc<DeviceQueue>),
    /// The address of the byte at this offset of an allocation, or of its end.
    Pointer(Arc<Allocation>, usize),
    /// A size and NULL: local memory, or a NULL buffer if the size is that of a handle.
    NullOfSize(u64),
}

#[derive(Debug, Clone, Default)]
pub(super) struct Arg {
    pub(super) value: Option<Value>,
    /// Whether the value changed since the last launch.
    pub(super) changed: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Value {
    Scalar(Bytes),
    /// Object values are weak references, since kernels don't retain their arguments: a buffer that the application
    /// released is destroyed, and its destructor callbacks run, even if it is an argument.
    Buffer(u64, Weak<Buffer>),
    Image(u64, Weak<Image>),
    Sampler(u64, Weak<Sampler>),
    Pipe(u64, Weak<Pipe>),
    DeviceQueue(u64, Weak<DeviceQueue>),
    Pointer(u64, Weak<Buffer>, usize),
    NullOfSize(u64),
}

/// Objects that a launch keeps alive until it has ended.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) buffers: Vec<Arc<Buffer>>,
    pub(crate) images: Vec<Arc<Image>>,
    pub(crate) others: Vec<Other>,
}

/// An object that is kept alive and not accessed.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not looked at")]
pub(crate) enum Other {
    Sampler(Arc<Sampler>),
    Pipe(Arc<Pipe>),
    DeviceQueue(Arc<DeviceQueue>),
    Indirect(Arc<IndirectLaunch>),
}

impl Held {
    /// Adds the object of `value`; `None` if the object was destroyed.
    pub(super) fn hold(&mut self, value: &Value) -> Option<()> {
        match value {
            Value::Buffer(_, buffer) | Value::Pointer(_, buffer, _) => self.buffers.push(buffer.upgrade()?),
            Value::Image(_, image) => self.images.push(image.upgrade()?),
            Value::Sampler(_, sampler) => self.others.push(Other::Sampler(sampler.upgrade()?)),
            Value::Pipe(_, pipe) => self.others.push(Other::Pipe(pipe.upgrade()?)),
            Value::DeviceQueue(_, queue) => self.others.push(Other::DeviceQueue(queue.upgrade()?)),
            Value::Scalar(_) | Value::NullOfSize(_) => {}
        }
        Some(())
    }
}

impl Value {
    /// Converts a value. An object must belong to the kernel's context.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT`, `CL_INVALID_SAMPLER` or `CL_INVALID_DEVICE_QUEUE` for an object of another context.
    pub(super) fn of(value: ArgValue<'_>, context: &Arc<Context>) -> Result<Self> {
        let check = |its: &Arc<Context>, error| if Arc::ptr_eq(its, context) { Ok(()) } else { Err(error) };
        match value {
            ArgValue::Scalar(bytes) => Ok(Self::Scalar(Bytes::copy_from_slice(bytes))),
            ArgValue::NullOfSize(size) => Ok(Self::NullOfSize(size)),
            ArgValue::Buffer(buffer) => check(buffer.context(), ClError::INVALID_MEM_OBJECT)
                .map(|()| Self::Buffer(buffer.id(), Arc::downgrade(&buffer))),
            ArgValue::Image(image) => check(image.context(), ClError::INVALID_MEM_OBJECT)
                .map(|()| Self::Image(image.id(), Arc::downgrade(&image))),
            ArgValue::Sampler(sampler) => check(sampler.context(), ClError::INVALID_SAMPLER)
                .map(|()| Self::Sampler(sampler.id(), Arc::downgrade(&sampler))),
            ArgValue::Pipe(pipe) => check(pipe.context(), ClError::INVALID_MEM_OBJECT)
                .map(|()| Self::Pipe(pipe.id(), Arc::downgrade(&pipe))),
            ArgValue::Pointer(allocation, offset) => check(allocation.context(), ClError::INVALID_ARG_VALUE)
                .map(|()| {
                    let buffer = allocation.buffer();
                    Self::Pointer(buffer.id(), Arc::downgrade(buffer), offset)
                }),
            ArgValue::DeviceQueue(queue) => check(queue.context(), ClError::INVALID_DEVICE_QUEUE)
                .map(|()| Self::DeviceQueue(queue.id(), Arc::downgrade(&queue))),
        }
    }

    pub(super) fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scalar(a), Self::Scalar(b)) => a == b,
            (Self::Pointer(a, _, at), Self::Pointer(b, _, offset)) => a == b && at == offset,
            (Self::Buffer(a, _), Self::Buffer(b, _))
            | (Self::Image(a, _), Self::Image(b, _))
            | (Self::Sampler(a, _), Self::Sampler(b, _))
            | (Self::Pipe(a, _), Self::Pipe(b, _))
            | (Self::DeviceQueue(a, _), Self::DeviceQueue(b, _))
            | (Self::NullOfSize(a), Self::NullOfSize(b)) => a == b,
            _ => false,
        }
    }

    /// Size in bytes of the local memory that the value takes.
    pub(super) fn local_bytes(&self, kind: ArgKind) -> u64 {
        match (kind, self) {
            (ArgKind::Local, Self::NullOfSize(size)) => *size,
            _ => 0,
        }
    }

    pub(super) fn to_message(&self) -> kernel_arg::Value {
        match self {
            Self::Scalar(bytes) => kernel_arg::Value::Scalar(bytes.clone()),
            Self::Buffer(id, _) => kernel_arg::Value::Buffer(*id),
            Self::Image(id, _) => kernel_arg::Value::Image(*id),
            Self::Sampler(id, _) => kernel_arg::Value::Sampler(*id),
            Self::Pipe(id, _) => kernel_arg::Value::Pipe(*id),
            Self::DeviceQueue(id, _) => kernel_arg::Value::DeviceQueue(*id),
            Self::Pointer(id, _, offset) => {
                kernel_arg::Value::Pointer(v1::Pointer { buffer: *id, offset: *offset as u64 })
            }
            Self::NullOfSize(size) => kernel_arg::Value::NullOfSize(*size),
        }
    }
}

/// Checks a value against the kind of the argument.
pub(super) fn check(kind: ArgKind, value: &ArgValue<'_>) -> Result<()> {
    let wrong_size = Err(ClError::INVALID_ARG_SIZE);
    let wrong_value = Err(ClError::INVALID_ARG_VALUE);
    match kind {
        ArgKind::Unknown => Ok(()),
        ArgKind::Buffer => match value {
            ArgValue::Buffer(_) | ArgValue::Pointer(..) | ArgValue::NullOfSize(HANDLE_BYTES) => Ok(()),
            ArgValue::Scalar(bytes) if bytes.len() as u64 == HANDLE_BYTES => Err(ClError::INVALID_MEM_OBJECT),
            ArgValue::Scalar(_) | ArgValue::NullOfSize(_) => wrong_size,
            _ => Err(ClError::INVALID_MEM_OBJECT),
        },
        ArgKind::Image => {
            check_handle(matches!(value, ArgValue::Image(_)), value, ClError::INVALID_MEM_OBJECT)
        }
        ArgKind::Pipe => check_handle(matches!(value, ArgValue::Pipe(_)), value, ClError::INVALID_MEM_OBJECT),
        ArgKind::DeviceQueue => {
            check_handle(matches!(value, ArgValue::DeviceQueue(_)), value, ClError::INVALID_DEVICE_QUEUE)
        }
        ArgKind::Sampler => {
            check_handle(matches!(value, ArgValue::Sampler(_)), value, ClError::INVALID_SAMPLER)
        }
        ArgKind::Local => match value {
            ArgValue::NullOfSize(0) => wrong_size,
            ArgValue::NullOfSize(_) => Ok(()),
            _ => wrong_value,
        },
        ArgKind::Scalar(size) => match value {
            ArgValue::Scalar(bytes) if size.is_none_or(|size| size == bytes.len()) => Ok(()),
            ArgValue::Scalar(_) => wrong_size,
            ArgValue::NullOfSize(_) => wrong_value,
            _ if size.is_some_and(|size| size as u64 != HANDLE_BYTES) => wrong_size,
            _ => wrong_value,
        },
    }
}

/// The check for an argument that takes one kind of handle and no NULL; `otherwise` is the error for other handles.
fn check_handle(is_one: bool, value: &ArgValue<'_>, otherwise: ClError) -> Result<()> {
    match value {
        _ if is_one => Ok(()),
        ArgValue::Scalar(bytes) if bytes.len() as u64 != HANDLE_BYTES => Err(ClError::INVALID_ARG_SIZE),
        ArgValue::NullOfSize(size) if *size != HANDLE_BYTES => Err(ClError::INVALID_ARG_SIZE),
        _ => Err(otherwise),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_do_not_fit_get_the_standards_codes() {
        let int = ArgKind::Scalar(Some(4));
        let scalar = |len| ArgValue::Scalar(&[0; 16][..len]);
        assert_eq!(check(int, &scalar(4)), Ok(()));
        assert_eq!(check(int, &scalar(8)), Err(ClError::INVALID_ARG_SIZE));
        assert_eq!(check(int, &ArgValue::NullOfSize(4)), Err(ClError::INVALID_ARG_VALUE));
        assert_eq!(check(ArgKind::Scalar(None), &scalar(13)), Ok(()));
        assert_eq!(check(ArgKind::Buffer, &ArgValue::NullOfSize(8)), Ok(()));
        assert_eq!(check(ArgKind::Buffer, &scalar(8)), Err(ClError::INVALID_MEM_OBJECT));
        assert_eq!(check(ArgKind::Buffer, &scalar(4)), Err(ClError::INVALID_ARG_SIZE));
        assert_eq!(check(ArgKind::Local, &ArgValue::NullOfSize(64)), Ok(()));
        assert_eq!(check(ArgKind::Local, &ArgValue::NullOfSize(0)), Err(ClError::INVALID_ARG_SIZE));
        assert_eq!(check(ArgKind::Local, &scalar(4)), Err(ClError::INVALID_ARG_VALUE));
        assert_eq!(check(ArgKind::Unknown, &scalar(5)), Ok(()));
    }
}
