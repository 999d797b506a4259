//! Kernels and their arguments. A launch sees the arguments that the session had set when it was flushed,
//! whenever it runs.
//!
//! A launch may wait while later ones of the same kernel run. So each takes a snapshot of the arguments when
//! it is flushed, and when it starts, only the arguments that differ are set on the vendor's kernel. The
//! launch keeps its arguments alive; the kernel does not, so an object can be released without a search of
//! the kernels.

use crate::buffer::Buffer;
use crate::images::{Image, Sampler};
use crate::kinds;
use crate::pipes::{DeviceQueue, Pipe};
use crate::programs::Program;
use fpga_board::dispatch::Kind;
use fpga_vendor::{self as vendor, ClError, ClResult};
use std::sync::{Arc, Weak};

/// A kernel of a session.
#[derive(Debug)]
pub struct Kernel {
    /// Program of the kernel.
    pub program: Arc<Program>,
    /// Kind of the kernel, for profiles.
    pub kind: Kind,
    vendor: vendor::Kernel,
    /// The arguments that the session has set last.
    wanted: Vec<Option<KeptArgument>>,
    /// The arguments of the last launch. The next launch shares them if nothing has changed and the last has
    /// not ended.
    last: Weak<Arguments>,
    /// The arguments that the vendor's kernel has. They are void after a reconfiguration of the whole board.
    applied: Vec<Option<KeptArgument>>,
    /// The number of such reconfigurations when `applied` was last valid.
    applied_at: u64,
}

/// The arguments of one launch.
#[derive(Debug, Clone, Default)]
pub struct Arguments(Vec<Argument>);

/// The value of an argument.
#[derive(Debug, Clone)]
pub enum Argument {
    /// The bytes of the value.
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
    /// The address of the byte at this offset of a buffer in shared memory, or of the buffer's end.
    Pointer(Arc<Buffer>, usize),
    /// Local memory of this size in bytes, or a NULL buffer.
    Null(usize),
}

impl Argument {
    /// The address at `offset` of a buffer.
    ///
    /// # Errors
    /// `CL_INVALID_ARG_VALUE` (-50) if the buffer doesn't lie in shared memory, or the offset is beyond its end.
    pub fn pointer(buffer: Arc<Buffer>, offset: u64) -> ClResult<Self> {
        let offset = usize::try_from(offset).ok().filter(|offset| *offset <= buffer.size);
        match offset.filter(|_| buffer.shared.is_some()) {
            Some(offset) => Ok(Self::Pointer(buffer, offset)),
            None => Err(ClError::INVALID_ARG_VALUE),
        }
    }
}

/// An argument as the kernel keeps it: a weak reference where it is an object.
#[derive(Debug, Clone)]
enum KeptArgument {
    Value(Arc<[u8]>),
    Buffer(Weak<Buffer>),
    Image(Weak<Image>),
    Sampler(Weak<Sampler>),
    Pipe(Weak<Pipe>),
    DeviceQueue(Weak<DeviceQueue>),
    Pointer(Weak<Buffer>, usize),
    Null(usize),
}

impl KeptArgument {
    fn of(argument: &Argument) -> Self {
        match argument {
            Argument::Value(bytes) => Self::Value(bytes.clone()),
            Argument::Buffer(buffer) => Self::Buffer(Arc::downgrade(buffer)),
            Argument::Image(image) => Self::Image(Arc::downgrade(image)),
            Argument::Sampler(sampler) => Self::Sampler(Arc::downgrade(sampler)),
            Argument::Pipe(pipe) => Self::Pipe(Arc::downgrade(pipe)),
            Argument::DeviceQueue(queue) => Self::DeviceQueue(Arc::downgrade(queue)),
            Argument::Pointer(buffer, offset) => Self::Pointer(Arc::downgrade(buffer), *offset),
            Argument::Null(size) => Self::Null(*size),
        }
    }

    /// The argument; `None` if its object is gone.
    fn argument(&self) -> Option<Argument> {
        match self {
            Self::Value(bytes) => Some(Argument::Value(bytes.clone())),
            Self::Buffer(buffer) => buffer.upgrade().map(Argument::Buffer),
            Self::Image(image) => image.upgrade().map(Argument::Image),
            Self::Sampler(sampler) => sampler.upgrade().map(Argument::Sampler),
            Self::Pipe(pipe) => pipe.upgrade().map(Argument::Pipe),
            Self::DeviceQueue(queue) => queue.upgrade().map(Argument::DeviceQueue),
            Self::Pointer(buffer, offset) => {
                buffer.upgrade().map(|buffer| Argument::Pointer(buffer, *offset))
            }
            Self::Null(size) => Some(Argument::Null(*size)),
        }
    }

    /// Whether both are the same. The weak reference keeps the allocation of a gone object, so no other
    /// object can have its address.
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
            (Self::Pointer(one, at), Argument::Pointer(two, offset)) => at == offset && same(one, two),
            (Self::Null(one), Argument::Null(two)) => one == two,
            _ => false,
        }
    }
}

impl Kernel {
    /// A kernel without arguments.
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

    /// Applies the changes, each an index and the argument or its error, and returns the arguments for a launch now.
    ///
    /// # Errors
    /// The error of the first argument that is invalid. The launch fails, and the argument counts as not set.
    pub fn set(
        &mut self,
        changes: impl ExactSizeIterator<Item = (u32, ClResult<Argument>)>,
    ) -> ClResult<Arc<Arguments>> {
        if changes.len() == 0
            && let Some(last) = self.last.upgrade()
        {
            return Ok(last);
        }
        self.last = Weak::new();
        let mut failure = None;
        for (index, argument) in changes {
            let index = usize::try_from(index).unwrap_or(usize::MAX);
            let Some(place) = self.wanted.get_mut(index) else {
                failure = failure.or(Some(ClError::INVALID_ARG_INDEX));
                continue;
            };
            *place = argument.as_ref().ok().map(KeptArgument::of);
            failure = failure.or(argument.err());
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let arguments = self.wanted.iter().map(|kept| kept.as_ref()?.argument()).collect();
        let arguments: Option<Vec<Argument>> = arguments;
        let arguments = Arc::new(Arguments(arguments.ok_or(ClError::INVALID_KERNEL_ARGS)?));
        self.last = Arc::downgrade(&arguments);
        Ok(arguments)
    }

    /// Sets those arguments on the vendor's kernel that differ from its current ones.
    ///
    /// # Errors
    /// The vendor's error.
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
            // If setting fails, the next launch sets the argument again.
            *applied = None;
            match argument {
                Argument::Value(bytes) => self.vendor.set_value(index, bytes),
                Argument::Buffer(buffer) => self.vendor.set_buffer(index, &buffer.vendor),
                Argument::Image(image) => self.vendor.set_image(index, &image.vendor),
                Argument::Sampler(sampler) => self.vendor.set_sampler(index, &sampler.vendor),
                Argument::Pipe(pipe) => self.vendor.set_pipe(index, pipe.vendor()),
                Argument::DeviceQueue(queue) => self.vendor.set_queue(index, &queue.vendor),
                Argument::Pointer(buffer, offset) => {
                    let bytes = buffer.shared.as_ref().ok_or(ClError::INVALID_ARG_VALUE)?;
                    let device = buffer.context.devices.first().ok_or(ClError::INVALID_CONTEXT)?;
                    self.vendor.set_pointer(index, bytes, *offset, device.vendor)
                }
                Argument::Null(size) => self.vendor.set_null(index, *size),
            }?;
            *applied = Some(KeptArgument::of(argument));
        }
        Ok(())
    }
}

impl Arguments {
    /// The buffers among the arguments, and the buffers of the images among them.
    pub fn buffers(&self) -> impl Iterator<Item = &Arc<Buffer>> {
        self.0.iter().filter_map(|argument| match argument {
            Argument::Buffer(buffer) | Argument::Pointer(buffer, _) => Some(buffer),
            Argument::Image(image) => image.buffer.as_ref(),
            _ => None,
        })
    }
}
