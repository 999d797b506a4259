//! Kernels and their arguments: launches see the arguments in the order of the session, whenever they run.
//!
//! A launch may wait aside while later ones of the same kernel run, so each takes a snapshot when it is flushed, and
//! only what differs is set on the vendor's kernel when it starts.

use crate::dispatcher::Kind;
use crate::images::{Image, Sampler};
use crate::kinds;
use crate::objects::{Buffer, Context, Object, Objects};
use crate::pipes::{DeviceQueue, Pipe};
use crate::programs::Program;
use crate::vendor::{self, ClError, ClResult};
use fpga_protocol::v1;
use fpga_protocol::v1::kernel_arg::Value;
use opencl_sys::{
    CL_INVALID_ARG_INDEX, CL_INVALID_ARG_SIZE, CL_INVALID_ARG_VALUE, CL_INVALID_DEVICE_QUEUE,
    CL_INVALID_KERNEL_ARGS, CL_INVALID_MEM_OBJECT, CL_INVALID_SAMPLER,
};
use std::sync::Arc;

/// Longest argument by value; the standard's largest type has 128 bytes, structures may be longer.
const MAX_VALUE_BYTES: usize = 64 * 1024;

/// A kernel of a session.
#[derive(Debug)]
pub struct Kernel {
    /// Its program.
    pub program: Arc<Program>,
    /// What it is, for profiles.
    pub kind: Kind,
    vendor: vendor::Kernel,
    /// As the session has set them so far.
    wanted: Arc<Arguments>,
    /// As the vendor's kernel has them, if there was no reconfiguration of the whole board since.
    applied: Arc<Arguments>,
    /// How many there had been.
    applied_at: u64,
}

/// The arguments of one launch.
#[derive(Debug, Clone, Default)]
pub struct Arguments(Vec<Option<Argument>>);

/// The value of an argument.
#[derive(Debug, Clone)]
pub enum Argument {
    /// Bytes.
    Value(Box<[u8]>),
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
    /// Local memory of that size, or a NULL buffer.
    Null(usize),
}

impl PartialEq for Argument {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(one), Self::Value(two)) => one == two,
            (Self::Buffer(one), Self::Buffer(two)) => Arc::ptr_eq(one, two),
            (Self::Image(one), Self::Image(two)) => Arc::ptr_eq(one, two),
            (Self::Sampler(one), Self::Sampler(two)) => Arc::ptr_eq(one, two),
            (Self::Pipe(one), Self::Pipe(two)) => Arc::ptr_eq(one, two),
            (Self::DeviceQueue(one), Self::DeviceQueue(two)) => Arc::ptr_eq(one, two),
            (Self::Null(one), Self::Null(two)) => one == two,
            _ => false,
        }
    }
}

impl Kernel {
    /// A kernel whose arguments nobody has set.
    #[must_use]
    pub fn new(program: Arc<Program>, vendor: vendor::Kernel) -> Self {
        let none = Arc::new(Arguments(vec![None; vendor.kinds().len()]));
        let kind = kinds::of_kernel(program.identity(), &vendor.name().unwrap_or_default());
        let applied_at = vendor::switches();
        Self { program, kind, vendor, wanted: none.clone(), applied: none, applied_at }
    }

    /// The vendor's kernel.
    #[must_use]
    pub fn vendor(&self) -> &vendor::Kernel {
        &self.vendor
    }

    /// Sets what has changed; gives the arguments of a launch now.
    ///
    /// # Errors
    /// The first argument's that can't be: the launch fails, and the argument counts as not set.
    pub fn set(&mut self, changes: Vec<v1::KernelArg>, objects: &Objects) -> ClResult<Arc<Arguments>> {
        if !changes.is_empty() {
            let wanted = Arc::make_mut(&mut self.wanted);
            let mut failure = None;
            for change in changes {
                let index = usize::try_from(change.index).unwrap_or(usize::MAX);
                let Some(place) = wanted.0.get_mut(index) else {
                    failure = failure.or(Some(ClError(CL_INVALID_ARG_INDEX)));
                    continue;
                };
                match Argument::new(change.value, objects, &self.program.context) {
                    Ok(argument) => *place = Some(argument),
                    Err(error) => {
                        *place = None;
                        failure = failure.or(Some(error));
                    }
                }
            }
            if let Some(error) = failure {
                return Err(error);
            }
        }
        if self.wanted.0.contains(&None) {
            return Err(ClError(CL_INVALID_KERNEL_ARGS));
        }
        Ok(self.wanted.clone())
    }

    /// Gives the vendor's kernel these arguments, as far as it has others.
    ///
    /// # Errors
    /// The vendor's.
    pub fn apply(&mut self, arguments: &Arc<Arguments>) -> ClResult<()> {
        let switches = vendor::switches();
        if self.applied_at != switches {
            self.applied = Arc::new(Arguments(vec![None; self.applied.0.len()]));
            self.applied_at = switches;
        }
        if Arc::ptr_eq(&self.applied, arguments) {
            return Ok(());
        }
        for (index, (argument, applied)) in (0..).zip(arguments.0.iter().zip(&self.applied.0)) {
            if argument == applied {
                continue;
            }
            let set = match argument {
                None => Err(ClError(CL_INVALID_KERNEL_ARGS)),
                Some(Argument::Value(bytes)) => self.vendor.set_value(index, bytes),
                Some(Argument::Buffer(buffer)) => self.vendor.set_buffer(index, &buffer.vendor),
                Some(Argument::Image(image)) => self.vendor.set_image(index, &image.vendor),
                Some(Argument::Sampler(sampler)) => self.vendor.set_sampler(index, &sampler.vendor),
                Some(Argument::Pipe(pipe)) => self.vendor.set_pipe(index, &pipe.vendor),
                Some(Argument::DeviceQueue(queue)) => self.vendor.set_queue(index, &queue.vendor),
                Some(Argument::Null(size)) => self.vendor.set_null(index, *size),
            };
            if let Err(error) = set {
                // Some are new and some are not: the next launch sets all.
                self.applied = Arc::new(Arguments(vec![None; self.applied.0.len()]));
                return Err(error);
            }
        }
        self.applied = arguments.clone();
        Ok(())
    }

    /// The session has released this object: the kernel must be given another before its next launch.
    pub fn forget(&mut self, object: &Argument) {
        for arguments in [&mut self.wanted, &mut self.applied] {
            if arguments.0.iter().flatten().any(|argument| argument == object) {
                for argument in &mut Arc::make_mut(arguments).0 {
                    if argument.as_ref() == Some(object) {
                        *argument = None;
                    }
                }
            }
        }
    }
}

impl Arguments {
    /// The buffers among them, and those that images among them lie in.
    pub fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        self.0.iter().filter_map(|argument| match argument {
            Some(Argument::Buffer(buffer)) => Some(buffer),
            Some(Argument::Image(image)) => image.buffer.as_ref(),
            _ => None,
        })
    }
}

impl Argument {
    /// What an object is as an argument; nothing where it can't be one.
    #[must_use]
    pub fn of(object: Object) -> Option<Self> {
        match object {
            Object::Buffer(buffer) => Some(Self::Buffer(buffer)),
            Object::Image(image) => Some(Self::Image(image)),
            Object::Sampler(sampler) => Some(Self::Sampler(sampler)),
            Object::Pipe(pipe) => Some(Self::Pipe(pipe)),
            Object::DeviceQueue(queue) => Some(Self::DeviceQueue(queue)),
            _ => None,
        }
    }

    fn new(value: Option<Value>, objects: &Objects, context: &Arc<Context>) -> ClResult<Self> {
        let of_context = |other: &Arc<Context>, code| {
            if Arc::ptr_eq(other, context) { Ok(()) } else { Err(ClError(code)) }
        };
        match value {
            // Copied: a slice would keep the whole message that it came in.
            Some(Value::Scalar(bytes)) if bytes.len() <= MAX_VALUE_BYTES => {
                Ok(Self::Value(bytes.as_ref().into()))
            }
            Some(Value::Scalar(_)) => Err(ClError(CL_INVALID_ARG_SIZE)),
            Some(Value::Buffer(id)) => {
                let buffer = objects.buffer(id)?;
                of_context(&buffer.context, CL_INVALID_MEM_OBJECT)?;
                Ok(Self::Buffer(buffer))
            }
            Some(Value::Image(id)) => {
                let image = objects.image(id)?;
                of_context(&image.context, CL_INVALID_MEM_OBJECT)?;
                Ok(Self::Image(image))
            }
            Some(Value::Sampler(id)) => {
                let sampler = objects.sampler(id)?;
                of_context(&sampler.context, CL_INVALID_SAMPLER)?;
                Ok(Self::Sampler(sampler))
            }
            Some(Value::Pipe(id)) => {
                let pipe = objects.pipe(id)?;
                of_context(&pipe.context, CL_INVALID_MEM_OBJECT)?;
                Ok(Self::Pipe(pipe))
            }
            Some(Value::DeviceQueue(id)) => {
                let queue = objects.device_queue(id)?;
                of_context(&queue.context, CL_INVALID_DEVICE_QUEUE)?;
                Ok(Self::DeviceQueue(queue))
            }
            Some(Value::NullOfSize(size)) => {
                usize::try_from(size).map(Self::Null).map_err(|_| ClError(CL_INVALID_ARG_SIZE))
            }
            None => Err(ClError(CL_INVALID_ARG_VALUE)),
        }
    }
}
