//! Kernels and their arguments: launches see the arguments in the order of the session, whenever they run.
//!
//! A launch may wait aside while later ones of the same kernel run, so each takes a snapshot when it is flushed, and
//! only what differs is set on the vendor's kernel when it starts. The launch keeps its arguments; the kernel does not, and
//! so an object can be released without a look at the kernels.

use crate::dispatcher::Kind;
use crate::images::{Image, Sampler};
use crate::kinds;
use crate::objects::{Buffer, Context, Objects};
use crate::pipes::{DeviceQueue, Pipe};
use crate::programs::Program;
use crate::vendor::{self, ClError, ClResult};
use fpga_protocol::v1;
use fpga_protocol::v1::kernel_arg::Value;
use opencl_sys::{
    CL_INVALID_ARG_INDEX, CL_INVALID_ARG_SIZE, CL_INVALID_ARG_VALUE, CL_INVALID_DEVICE_QUEUE,
    CL_INVALID_KERNEL_ARGS, CL_INVALID_MEM_OBJECT, CL_INVALID_SAMPLER,
};
use std::sync::{Arc, Weak};

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
    wanted: Vec<Option<Kept>>,
    /// The last launch's, which the next one shares if nothing has changed and that one has not ended.
    last: Weak<Arguments>,
    /// As the vendor's kernel has them, if there was no reconfiguration of the whole board since.
    applied: Vec<Option<Kept>>,
    /// How many there had been.
    applied_at: u64,
}

/// The arguments of one launch.
#[derive(Debug, Clone, Default)]
pub struct Arguments(Vec<Argument>);

/// The value of an argument.
#[derive(Debug, Clone)]
pub enum Argument {
    /// Bytes.
    Value(Arc<[u8]>),
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

/// What a kernel keeps of an argument: objects may go.
#[derive(Debug, Clone)]
enum Kept {
    Value(Arc<[u8]>),
    Buffer(Weak<Buffer>),
    Image(Weak<Image>),
    Sampler(Weak<Sampler>),
    Pipe(Weak<Pipe>),
    DeviceQueue(Weak<DeviceQueue>),
    Null(usize),
}

impl Kept {
    fn of(argument: &Argument) -> Self {
        match argument {
            Argument::Value(bytes) => Self::Value(bytes.clone()),
            Argument::Buffer(buffer) => Self::Buffer(Arc::downgrade(buffer)),
            Argument::Image(image) => Self::Image(Arc::downgrade(image)),
            Argument::Sampler(sampler) => Self::Sampler(Arc::downgrade(sampler)),
            Argument::Pipe(pipe) => Self::Pipe(Arc::downgrade(pipe)),
            Argument::DeviceQueue(queue) => Self::DeviceQueue(Arc::downgrade(queue)),
            Argument::Null(size) => Self::Null(*size),
        }
    }

    /// Nothing where the object is gone.
    fn argument(&self) -> Option<Argument> {
        match self {
            Self::Value(bytes) => Some(Argument::Value(bytes.clone())),
            Self::Buffer(buffer) => buffer.upgrade().map(Argument::Buffer),
            Self::Image(image) => image.upgrade().map(Argument::Image),
            Self::Sampler(sampler) => sampler.upgrade().map(Argument::Sampler),
            Self::Pipe(pipe) => pipe.upgrade().map(Argument::Pipe),
            Self::DeviceQueue(queue) => queue.upgrade().map(Argument::DeviceQueue),
            Self::Null(size) => Some(Argument::Null(*size)),
        }
    }

    /// Whether both are the same. An object that is gone is no other one: its allocation stays taken.
    fn is(&self, argument: &Argument) -> bool {
        fn same<T>(kept: &Weak<T>, object: &Arc<T>) -> bool {
            std::ptr::eq(kept.as_ptr(), Arc::as_ptr(object))
        }
        match (self, argument) {
            (Self::Value(one), Argument::Value(two)) => one == two,
            (Self::Buffer(one), Argument::Buffer(two)) => same(one, two),
            (Self::Image(one), Argument::Image(two)) => same(one, two),
            (Self::Sampler(one), Argument::Sampler(two)) => same(one, two),
            (Self::Pipe(one), Argument::Pipe(two)) => same(one, two),
            (Self::DeviceQueue(one), Argument::DeviceQueue(two)) => same(one, two),
            (Self::Null(one), Argument::Null(two)) => one == two,
            _ => false,
        }
    }
}

impl Kernel {
    /// A kernel whose arguments nobody has set.
    #[must_use]
    pub fn new(program: Arc<Program>, vendor: vendor::Kernel) -> Self {
        let none = vec![None; vendor.kinds().len()];
        let kind = kinds::of_kernel(program.identity(), &vendor.name().unwrap_or_default());
        let applied_at = vendor::switches();
        Self { program, kind, vendor, wanted: none.clone(), last: Weak::new(), applied: none, applied_at }
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
        if changes.is_empty()
            && let Some(last) = self.last.upgrade()
        {
            return Ok(last);
        }
        self.last = Weak::new();
        let mut failure = None;
        for change in changes {
            let index = usize::try_from(change.index).unwrap_or(usize::MAX);
            let Some(place) = self.wanted.get_mut(index) else {
                failure = failure.or(Some(ClError(CL_INVALID_ARG_INDEX)));
                continue;
            };
            let argument = Argument::new(change.value, objects, &self.program.context);
            *place = argument.as_ref().ok().map(Kept::of);
            failure = failure.or(argument.err());
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let arguments = self.wanted.iter().map(|kept| kept.as_ref()?.argument()).collect();
        let arguments: Option<Vec<Argument>> = arguments;
        let arguments = Arc::new(Arguments(arguments.ok_or(ClError(CL_INVALID_KERNEL_ARGS))?));
        self.last = Arc::downgrade(&arguments);
        Ok(arguments)
    }

    /// Gives the vendor's kernel these arguments, as far as it has others.
    ///
    /// # Errors
    /// The vendor's.
    pub fn apply(&mut self, arguments: &Arguments) -> ClResult<()> {
        let switches = vendor::switches();
        if self.applied_at != switches {
            self.applied.fill(None);
            self.applied_at = switches;
        }
        for (index, (argument, applied)) in (0..).zip(arguments.0.iter().zip(&mut self.applied)) {
            if applied.as_ref().is_some_and(|applied| applied.is(argument)) {
                continue;
            }
            // Where that fails the next launch sets it.
            *applied = None;
            match argument {
                Argument::Value(bytes) => self.vendor.set_value(index, bytes),
                Argument::Buffer(buffer) => self.vendor.set_buffer(index, &buffer.vendor),
                Argument::Image(image) => self.vendor.set_image(index, &image.vendor),
                Argument::Sampler(sampler) => self.vendor.set_sampler(index, &sampler.vendor),
                Argument::Pipe(pipe) => self.vendor.set_pipe(index, &pipe.vendor),
                Argument::DeviceQueue(queue) => self.vendor.set_queue(index, &queue.vendor),
                Argument::Null(size) => self.vendor.set_null(index, *size),
            }?;
            *applied = Some(Kept::of(argument));
        }
        Ok(())
    }
}

impl Arguments {
    /// The buffers among them, and those that images among them lie in.
    pub fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        self.0.iter().filter_map(|argument| match argument {
            Argument::Buffer(buffer) => Some(buffer),
            Argument::Image(image) => image.buffer.as_ref(),
            _ => None,
        })
    }
}

impl Argument {
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
