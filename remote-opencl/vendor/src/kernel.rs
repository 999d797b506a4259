//! Kernels: the vendor's descriptions of them, and arguments that can't contain pointers of a client.
//!
//! Runtimes describe no arguments of programs from binaries, and accept any 8 bytes as a pointer. The kind of such
//! an argument is found by setting it to NULL with several sizes: the accepted sizes identify the kind on every
//! runtime.

use crate::api::{call, check};
use crate::handles::{Handle, Memory, Queue, handle};
use crate::image::Sampler;
use crate::info::{DeviceId, query, query_u64, text};
use crate::object::{self, Kind, VendorObject};
use crate::program::Program;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::{
    CL_KERNEL_ARG_ACCESS_NONE, CL_KERNEL_ARG_ACCESS_QUALIFIER, CL_KERNEL_ARG_ADDRESS_CONSTANT,
    CL_KERNEL_ARG_ADDRESS_GLOBAL, CL_KERNEL_ARG_ADDRESS_LOCAL, CL_KERNEL_ARG_ADDRESS_PRIVATE,
    CL_KERNEL_ARG_ADDRESS_QUALIFIER, CL_KERNEL_ARG_NAME, CL_KERNEL_ARG_TYPE_NAME, CL_KERNEL_ARG_TYPE_PIPE,
    CL_KERNEL_ARG_TYPE_QUALIFIER, CL_KERNEL_ATTRIBUTES, CL_KERNEL_COMPILE_WORK_GROUP_SIZE,
    CL_KERNEL_FUNCTION_NAME, CL_KERNEL_LOCAL_MEM_SIZE, CL_KERNEL_NUM_ARGS,
    CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE, CL_KERNEL_PRIVATE_MEM_SIZE, CL_KERNEL_WORK_GROUP_SIZE,
    CL_SUCCESS, cl_command_queue, cl_kernel, cl_mem, cl_sampler,
};
use std::ffi::{CStr, c_void};
use std::ptr;

handle! {
    /// The vendor's kernel object.
    RawKernel(cl_kernel) by clReleaseKernel
}

/// Maximum number of arguments; no kernel has as many.
const MAX_ARGS: u64 = 4096;

/// A kernel and the kinds of its arguments.
#[derive(Debug)]
pub struct Kernel {
    raw: RawKernel,
    kinds: Vec<ArgKind>,
    /// Bytes of local memory that the vendor counts for arguments that were set to find their kinds.
    tried_local: u64,
}

/// The kind of value that an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// Bytes.
    Value,
    /// Eight bytes: a number, or, on a runtime that accepts any bytes for a handle, an image, a sampler, a pipe or
    /// a queue.
    Word,
    /// A buffer, or NULL: `__global` and `__constant` pointers.
    Buffer,
    /// The size of local memory: `__local` pointers.
    Local,
    /// An image.
    Image,
    /// A sampler.
    Sampler,
    /// A pipe.
    Pipe,
    /// A queue on a device.
    Queue,
    /// A handle of unknown type: an image, a sampler, a pipe or a queue.
    Handle,
    /// Another kind, or an unknown one.
    Unknown,
}

/// The vendor's description of a kernel on one device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkGroupInfo {
    /// Maximum size of a work-group.
    pub work_group_size: u64,
    /// The work-group size that the source requires, or zeros.
    pub compile_work_group_size: Vec<u64>,
    /// Local memory in bytes.
    pub local_mem_size: u64,
    /// Preferred multiple of work-group sizes.
    pub preferred_multiple: u64,
    /// Private memory of a work-item in bytes.
    pub private_mem_size: u64,
}

/// The vendor's description of an argument.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArgInfo {
    /// `cl_kernel_arg_address_qualifier`.
    pub address_qualifier: u32,
    /// `cl_kernel_arg_access_qualifier`.
    pub access_qualifier: u32,
    /// Name of the type.
    pub type_name: String,
    /// `cl_kernel_arg_type_qualifier`.
    pub type_qualifier: u64,
    /// Name of the argument.
    pub name: String,
}

fn create_kernel(program: &VendorObject, name: &CStr) -> ClResult<cl_kernel> {
    let mut status = 0;
    // SAFETY: the program is live, and the name ends in NUL.
    let kernel = unsafe { call!(clCreateKernel(program.alive()?, name.as_ptr(), &raw mut status)) };
    check(status).map(|()| kernel)
}

impl Kernel {
    /// Makes the kernel with this name.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(program: &Program, name: &CStr) -> ClResult<Self> {
        let of = program.cell().clone();
        let kernel = Self::learn(create_kernel(&of, name)?)?;
        let name = name.to_owned();
        let kind = Kind::Kernel { program: of.clone() };
        object::remember(kernel.raw.cell(), kind, move |_| create_kernel(&of, &name));
        Ok(kernel)
    }

    /// Takes over a kernel, and finds the kinds of its arguments.
    pub(crate) fn learn(raw: cl_kernel) -> ClResult<Self> {
        let raw = RawKernel::own(raw, CL_SUCCESS)?;
        let mut kernel = Self { raw, kinds: Vec::new(), tried_local: 0 };
        let count = query_u64(|size, value, needed| kernel.info(CL_KERNEL_NUM_ARGS, size, value, needed))?;
        if count > MAX_ARGS {
            return Err(ClError::OUT_OF_RESOURCES);
        }
        let count = u32::try_from(count).unwrap_or(0);
        kernel.kinds = (0..count).map(|index| kernel.kind_of(index)).collect();
        Ok(kernel)
    }

    pub(crate) fn raw(&self) -> cl_kernel {
        self.raw.raw()
    }

    /// The kinds of the arguments, in order.
    #[must_use]
    pub fn kinds(&self) -> &[ArgKind] {
        &self.kinds
    }

    /// Whether an argument takes local memory.
    #[must_use]
    pub fn is_local(&self, index: u32) -> bool {
        self.kind(index) == Ok(ArgKind::Local)
    }

    fn kind_of(&mut self, index: u32) -> ArgKind {
        if let Ok(info) = self.arg_info(index) {
            let is_pipe = info.type_qualifier & u64::from(CL_KERNEL_ARG_TYPE_PIPE) != 0;
            if info.type_name == "sampler_t" {
                return ArgKind::Sampler;
            } else if info.type_name == "queue_t" {
                return ArgKind::Queue;
            } else if is_pipe {
                return ArgKind::Pipe;
            } else if ![0, CL_KERNEL_ARG_ACCESS_NONE].contains(&info.access_qualifier) {
                return ArgKind::Image;
            }
        }
        let told = query_u64(|size, value, needed| {
            self.arg(index, CL_KERNEL_ARG_ADDRESS_QUALIFIER, size, value, needed)
        });
        match told.map(|told| u32::try_from(told).unwrap_or(0)) {
            Ok(CL_KERNEL_ARG_ADDRESS_GLOBAL | CL_KERNEL_ARG_ADDRESS_CONSTANT) => return ArgKind::Buffer,
            Ok(CL_KERNEL_ARG_ADDRESS_LOCAL) => return ArgKind::Local,
            Ok(CL_KERNEL_ARG_ADDRESS_PRIVATE) => return ArgKind::Value,
            _ => {}
        }
        // The runtime accepts any size for local memory, only the size of a handle for a NULL buffer, and never
        // NULL for a value.
        let odd = self.set(index, 3, ptr::null());
        let handle = self.set(index, size_of::<cl_mem>(), ptr::null());
        match (odd.is_ok(), handle.is_ok()) {
            (true, is_last) => {
                self.tried_local += if is_last { size_of::<cl_mem>() as u64 } else { 3 };
                ArgKind::Local
            }
            (false, true) => ArgKind::Buffer,
            (false, false) => self.value_or_handle(index),
        }
    }

    /// Distinguishes a number from a handle by setting eight zero bytes: most runtimes refuse these for a handle,
    /// PoCL accepts them.
    fn value_or_handle(&self, index: u32) -> ArgKind {
        let zero = 0_u64;
        match self.set(index, size_of::<u64>(), (&raw const zero).cast()) {
            Ok(()) => ArgKind::Word,
            Err(ClError::INVALID_ARG_SIZE) => ArgKind::Value,
            Err(_) => ArgKind::Handle,
        }
    }

    /// Sets an argument to a value.
    ///
    /// # Errors
    /// The vendor's error; if the argument takes no value, the code for its kind, such as `CL_INVALID_MEM_OBJECT`
    /// (-38) or `CL_INVALID_ARG_VALUE` (-50).
    pub fn set_value(&mut self, index: u32, bytes: &[u8]) -> ClResult<()> {
        match self.kind(index)? {
            // A client that does not know the kind of the argument sends a NULL buffer as zeros.
            ArgKind::Buffer if bytes == [0; size_of::<cl_mem>()] => self.set(index, bytes.len(), ptr::null()),
            ArgKind::Buffer | ArgKind::Image | ArgKind::Pipe => Err(ClError::INVALID_MEM_OBJECT),
            ArgKind::Queue => Err(ClError::INVALID_DEVICE_QUEUE),
            ArgKind::Local | ArgKind::Handle => Err(ClError::INVALID_ARG_VALUE),
            ArgKind::Sampler => Err(ClError::INVALID_SAMPLER),
            ArgKind::Unknown if bytes.len() == size_of::<cl_mem>() => Err(ClError::INVALID_ARG_VALUE),
            ArgKind::Value | ArgKind::Word | ArgKind::Unknown => {
                self.set(index, bytes.len(), bytes.as_ptr().cast())
            }
        }
    }

    /// Sets an argument to a buffer. The caller keeps the buffer until the launches of the kernel with it have
    /// ended.
    ///
    /// # Errors
    /// The vendor's error; if the argument takes no buffer, the code for its kind, such as `CL_INVALID_ARG_SIZE`
    /// (-51) or `CL_INVALID_ARG_VALUE` (-50).
    pub fn set_buffer(&mut self, index: u32, memory: &Memory) -> ClResult<()> {
        match self.kind(index)? {
            ArgKind::Value | ArgKind::Word => Err(ClError::INVALID_ARG_SIZE),
            ArgKind::Local | ArgKind::Handle => Err(ClError::INVALID_ARG_VALUE),
            ArgKind::Image | ArgKind::Pipe => Err(ClError::INVALID_MEM_OBJECT),
            ArgKind::Queue => Err(ClError::INVALID_DEVICE_QUEUE),
            ArgKind::Sampler => Err(ClError::INVALID_SAMPLER),
            ArgKind::Buffer | ArgKind::Unknown => {
                let handle = memory.cell().alive()?;
                self.set(index, size_of::<cl_mem>(), (&raw const handle).cast())
            }
        }
    }

    /// Sets an argument to an image. The caller keeps the image until the launches of the kernel with it have
    /// ended.
    ///
    /// # Errors
    /// The vendor's error; if the argument takes no image, the code for its kind, such as `CL_INVALID_MEM_OBJECT`
    /// (-38) for a pointer.
    pub fn set_image(&mut self, index: u32, image: &Memory) -> ClResult<()> {
        match self.kind(index)? {
            ArgKind::Buffer | ArgKind::Pipe => Err(ClError::INVALID_MEM_OBJECT),
            ArgKind::Value => Err(ClError::INVALID_ARG_SIZE),
            ArgKind::Local => Err(ClError::INVALID_ARG_VALUE),
            ArgKind::Sampler => Err(ClError::INVALID_SAMPLER),
            ArgKind::Queue => Err(ClError::INVALID_DEVICE_QUEUE),
            ArgKind::Image | ArgKind::Word | ArgKind::Handle | ArgKind::Unknown => {
                let handle = image.cell().alive()?;
                self.set(index, size_of::<cl_mem>(), (&raw const handle).cast())
            }
        }
    }

    /// Sets an argument to a pipe. The caller keeps the pipe until the launches of the kernel with it have ended.
    ///
    /// # Errors
    /// The vendor's error; if the argument takes no pipe, the code for its kind, as in [`Self::set_image`].
    pub fn set_pipe(&mut self, index: u32, pipe: &Memory) -> ClResult<()> {
        match self.kind(index)? {
            ArgKind::Buffer | ArgKind::Image => Err(ClError::INVALID_MEM_OBJECT),
            ArgKind::Value => Err(ClError::INVALID_ARG_SIZE),
            ArgKind::Local => Err(ClError::INVALID_ARG_VALUE),
            ArgKind::Sampler => Err(ClError::INVALID_SAMPLER),
            ArgKind::Queue => Err(ClError::INVALID_DEVICE_QUEUE),
            ArgKind::Pipe | ArgKind::Word | ArgKind::Handle | ArgKind::Unknown => {
                let handle = pipe.cell().alive()?;
                self.set(index, size_of::<cl_mem>(), (&raw const handle).cast())
            }
        }
    }

    /// Sets an argument to a queue on a device. The caller keeps the queue until the launches of the kernel with it
    /// have ended.
    ///
    /// # Errors
    /// The vendor's error; if the argument takes no queue, the code for its kind, as in [`Self::set_image`].
    pub fn set_queue(&mut self, index: u32, queue: &Queue) -> ClResult<()> {
        match self.kind(index)? {
            ArgKind::Buffer | ArgKind::Image | ArgKind::Pipe => Err(ClError::INVALID_MEM_OBJECT),
            ArgKind::Value => Err(ClError::INVALID_ARG_SIZE),
            ArgKind::Local => Err(ClError::INVALID_ARG_VALUE),
            ArgKind::Sampler => Err(ClError::INVALID_SAMPLER),
            ArgKind::Queue | ArgKind::Word | ArgKind::Handle | ArgKind::Unknown => {
                let handle = queue.cell().alive()?;
                self.set(index, size_of::<cl_command_queue>(), (&raw const handle).cast())
            }
        }
    }

    /// Sets an argument to a sampler. The caller keeps the sampler until the launches of the kernel with it have
    /// ended.
    ///
    /// # Errors
    /// The vendor's error; if the argument takes no sampler, the code for its kind, as in [`Self::set_image`].
    pub fn set_sampler(&mut self, index: u32, sampler: &Sampler) -> ClResult<()> {
        match self.kind(index)? {
            ArgKind::Buffer | ArgKind::Image | ArgKind::Pipe => Err(ClError::INVALID_MEM_OBJECT),
            ArgKind::Queue => Err(ClError::INVALID_DEVICE_QUEUE),
            ArgKind::Value => Err(ClError::INVALID_ARG_SIZE),
            ArgKind::Local => Err(ClError::INVALID_ARG_VALUE),
            ArgKind::Sampler | ArgKind::Word | ArgKind::Handle | ArgKind::Unknown => {
                let handle = sampler.cell().alive()?;
                self.set(index, size_of::<cl_sampler>(), (&raw const handle).cast())
            }
        }
    }

    /// Sets an argument to `size` bytes of local memory, or to a NULL buffer.
    ///
    /// # Errors
    /// The vendor's error; if the argument takes neither, the code for its kind.
    pub fn set_null(&mut self, index: u32, size: usize) -> ClResult<()> {
        match self.kind(index)? {
            ArgKind::Value | ArgKind::Word | ArgKind::Handle => Err(ClError::INVALID_ARG_VALUE),
            ArgKind::Image | ArgKind::Pipe => Err(ClError::INVALID_MEM_OBJECT),
            ArgKind::Queue => Err(ClError::INVALID_DEVICE_QUEUE),
            ArgKind::Sampler => Err(ClError::INVALID_SAMPLER),
            ArgKind::Local if size == 0 => Err(ClError::INVALID_ARG_SIZE),
            ArgKind::Buffer if size != size_of::<cl_mem>() => Err(ClError::INVALID_ARG_SIZE),
            ArgKind::Local | ArgKind::Buffer | ArgKind::Unknown => self.set(index, size, ptr::null()),
        }
    }

    fn kind(&self, index: u32) -> ClResult<ArgKind> {
        self.kinds.get(index as usize).copied().ok_or(ClError::INVALID_ARG_INDEX)
    }

    /// Sets an argument. Only the kernel's owner calls this: at creation, and later through `&mut`.
    fn set(&self, index: u32, size: usize, value: *const c_void) -> ClResult<()> {
        // SAFETY: the kernel is live, and `value` is NULL or has `size` bytes, which the vendor copies. The vendor
        // takes them for a handle only if a caller above has put a live handle there.
        check(unsafe { call!(clSetKernelArg(self.raw(), index, size, value)) })
    }

    /// The kernel's name.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn name(&self) -> ClResult<String> {
        query(|size, value, needed| self.info(CL_KERNEL_FUNCTION_NAME, size, value, needed)).map(text)
    }

    /// The kernel's attributes, as in the source.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn attributes(&self) -> ClResult<String> {
        query(|size, value, needed| self.info(CL_KERNEL_ATTRIBUTES, size, value, needed)).map(text)
    }

    /// The vendor's description of an argument.
    ///
    /// # Errors
    /// The vendor's error, -19 if there is no description, as for programs from binaries.
    pub fn arg_info(&self, index: u32) -> ClResult<ArgInfo> {
        let word = |param| query_u64(|size, value, needed| self.arg(index, param, size, value, needed));
        let name = |param| query(|size, value, needed| self.arg(index, param, size, value, needed)).map(text);
        let narrow = |wide: u64| u32::try_from(wide).unwrap_or(0);
        Ok(ArgInfo {
            address_qualifier: narrow(word(CL_KERNEL_ARG_ADDRESS_QUALIFIER)?),
            access_qualifier: narrow(word(CL_KERNEL_ARG_ACCESS_QUALIFIER)?),
            type_name: name(CL_KERNEL_ARG_TYPE_NAME)?,
            type_qualifier: word(CL_KERNEL_ARG_TYPE_QUALIFIER)?,
            name: name(CL_KERNEL_ARG_NAME)?,
        })
    }

    /// The vendor's description of the kernel on a device, before its arguments are set; zeros where there is none.
    #[must_use]
    pub fn work_group_info(&self, device: DeviceId) -> WorkGroupInfo {
        let ask = |param| {
            query(|size, value, needed| {
                // SAFETY: kernel and device are live, and `query` passes valid pointers.
                Ok(unsafe {
                    call!(clGetKernelWorkGroupInfo(self.raw(), device.0, param, size, value, needed))
                })
            })
            .unwrap_or_default()
        };
        let word = |param| crate::info::number(&ask(param));
        let sizes = ask(CL_KERNEL_COMPILE_WORK_GROUP_SIZE);
        WorkGroupInfo {
            work_group_size: word(CL_KERNEL_WORK_GROUP_SIZE),
            compile_work_group_size: sizes.chunks_exact(8).map(crate::info::number).collect(),
            local_mem_size: word(CL_KERNEL_LOCAL_MEM_SIZE).saturating_sub(self.tried_local),
            preferred_multiple: word(CL_KERNEL_PREFERRED_WORK_GROUP_SIZE_MULTIPLE),
            private_mem_size: word(CL_KERNEL_PRIVATE_MEM_SIZE),
        }
    }

    fn info(&self, param: u32, size: usize, value: *mut c_void, needed: *mut usize) -> ClResult<i32> {
        // SAFETY: the kernel is live, and `query` passes valid pointers.
        Ok(unsafe { call!(clGetKernelInfo(self.raw(), param, size, value, needed)) })
    }

    fn arg(
        &self,
        index: u32,
        param: u32,
        size: usize,
        value: *mut c_void,
        needed: *mut usize,
    ) -> ClResult<i32> {
        // SAFETY: the kernel is live, and `query` passes valid pointers.
        Ok(unsafe { call!(clGetKernelArgInfo(self.raw(), index, param, size, value, needed)) })
    }
}
