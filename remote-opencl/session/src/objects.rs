//! The objects of one session by their ids: contexts, queues, buffers, programs, kernels, and objects whose
//! creation failed.
//!
//! An object is shared by the registry and by the commands that still need it, so an id may be released while
//! commands use the object. Every use of a failed object returns the error of its creation.

use crate::buffer::Buffer;
use crate::context::Context;
use crate::images::{Image, Sampler};
use crate::kernel::Kernel;
use crate::pipes::{DeviceQueue, Pipe};
use crate::programs::Program;
use crate::queue::Queue;
use crate::sub_devices::SubDevice;
use fpga_vendor::{ClError, ClResult};
use opencl_sys::{
    CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT, CL_INVALID_DEVICE, CL_INVALID_DEVICE_QUEUE,
    CL_INVALID_KERNEL, CL_INVALID_MEM_OBJECT, CL_INVALID_PROGRAM, CL_INVALID_SAMPLER,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of objects of one session.
pub const MAX_OBJECTS: usize = 1 << 16;

/// The object of an id.
#[derive(Debug, Clone)]
pub enum Object {
    /// A context.
    Context(Arc<Context>),
    /// A queue.
    Queue(Arc<Queue>),
    /// A buffer.
    Buffer(Arc<Buffer>),
    /// An image.
    Image(Arc<Image>),
    /// A sampler.
    Sampler(Arc<Sampler>),
    /// A pipe.
    Pipe(Arc<Pipe>),
    /// A queue on a device.
    DeviceQueue(Arc<DeviceQueue>),
    /// A sub-device.
    SubDevice(Arc<SubDevice>),
    /// A program.
    Program(Arc<Program>),
    /// A kernel.
    Kernel(Arc<Mutex<Kernel>>),
    /// The creation of the object failed with this code.
    Failed(i32),
}

/// The objects of a session by their ids.
#[derive(Debug, Default)]
pub struct Objects {
    by_id: HashMap<u64, Object>,
}

/// The reason why an object can't be added: the client violates the protocol or exceeds its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The id is 0.
    #[error("object id 0 is none")]
    Zero,
    /// The id is already in use.
    #[error("object {0} is used twice")]
    UsedTwice(u64),
    /// The session has [`MAX_OBJECTS`] objects.
    #[error("a session may have {MAX_OBJECTS} objects; release some")]
    TooMany,
}

macro_rules! getter {
    ($name:ident, $variant:ident, $kind:ty, $code:ident) => {
        #[doc = concat!("The object of that id; its error if it failed, `", stringify!($code), "` if it is none.")]
        ///
        /// # Errors
        /// The code with which the object failed, or the code above if the id names no such object.
        pub fn $name(&self, id: u64) -> ClResult<$kind> {
            match self.by_id.get(&id) {
                Some(Object::$variant(object)) => Ok(object.clone()),
                Some(Object::Failed(code)) => Err(ClError(*code)),
                _ => Err(ClError($code)),
            }
        }
    };
}

impl Objects {
    getter!(context, Context, Arc<Context>, CL_INVALID_CONTEXT);
    getter!(queue, Queue, Arc<Queue>, CL_INVALID_COMMAND_QUEUE);
    getter!(buffer, Buffer, Arc<Buffer>, CL_INVALID_MEM_OBJECT);
    getter!(image, Image, Arc<Image>, CL_INVALID_MEM_OBJECT);
    getter!(sampler, Sampler, Arc<Sampler>, CL_INVALID_SAMPLER);
    getter!(pipe, Pipe, Arc<Pipe>, CL_INVALID_MEM_OBJECT);
    getter!(device_queue, DeviceQueue, Arc<DeviceQueue>, CL_INVALID_DEVICE_QUEUE);
    getter!(sub_device, SubDevice, Arc<SubDevice>, CL_INVALID_DEVICE);
    getter!(program, Program, Arc<Program>, CL_INVALID_PROGRAM);
    getter!(kernel, Kernel, Arc<Mutex<Kernel>>, CL_INVALID_KERNEL);

    /// Adds an object, or the error of its creation.
    ///
    /// # Errors
    /// [`AddError`], if the id is not allowed or there are too many objects; the session must end then.
    pub fn add(&mut self, id: u64, object: Object) -> Result<(), AddError> {
        if id == 0 {
            return Err(AddError::Zero);
        }
        if self.by_id.len() >= MAX_OBJECTS {
            return Err(AddError::TooMany);
        }
        match self.by_id.insert(id, object) {
            None => Ok(()),
            Some(_) => Err(AddError::UsedTwice(id)),
        }
    }

    /// Replaces the object of an id, if the id is in use.
    pub fn settle(&mut self, id: u64, object: Object) {
        if let Some(place) = self.by_id.get_mut(&id) {
            *place = object;
        }
    }

    /// Removes an id.
    pub fn release(&mut self, id: u64) {
        self.by_id.remove(&id);
    }
}
