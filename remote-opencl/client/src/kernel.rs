//! Kernels: their argument tables, and the values set so far.

use crate::buffer::Buffer;
use crate::error::{ClError, Result};
use crate::platform::Device;
use crate::program::Program;
use std::sync::Arc;

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    program: Arc<Program>,
    info: Arc<KernelInfo>,
}

/// What the runtime says of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelInfo {
    /// Function name.
    pub name: String,
    /// Number of arguments.
    pub num_args: u32,
    /// `CL_KERNEL_ATTRIBUTES`.
    pub attributes: String,
    /// What is known of each argument; empty where the runtime tells nothing (programs from binaries).
    pub args: Vec<ArgInfo>,
}

/// What the runtime says of an argument (`clGetKernelArgInfo`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgInfo {
    /// `cl_kernel_arg_address_qualifier`.
    pub address_qualifier: u32,
    /// `cl_kernel_arg_access_qualifier`.
    pub access_qualifier: u32,
    /// Type as written, for example `float*`.
    pub type_name: String,
    /// `cl_kernel_arg_type_qualifier`.
    pub type_qualifier: u64,
    /// Name as written.
    pub name: String,
}

/// `clGetKernelWorkGroupInfo` for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's names")]
pub struct WorkGroupInfo {
    pub work_group_size: u64,
    pub compile_work_group_size: [u64; 3],
    pub local_mem_size: u64,
    pub preferred_multiple: u64,
    pub private_mem_size: u64,
}

/// What an argument takes, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// A buffer (or NULL).
    Buffer,
    /// Local memory: a size and NULL.
    Local,
    /// Bytes; the size where the type is one of OpenCL C's own.
    Scalar(Option<usize>),
    /// An image, a sampler or a pipe, which aren't supported yet.
    Unsupported,
    /// Not known (programs from binaries): decide by the value.
    Unknown,
}

/// The value of an argument.
#[derive(Debug, Clone)]
pub enum ArgValue<'a> {
    /// Bytes by value; never a handle.
    Scalar(&'a [u8]),
    /// A buffer.
    Buffer(Arc<Buffer>),
    /// A size and NULL: local memory, or a NULL buffer where the size is that of a handle.
    NullOfSize(u64),
}

impl Kernel {
    /// `clCreateKernel`.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` before a successful build, `CL_INVALID_KERNEL_NAME`.
    pub fn new(_program: &Arc<Program>, _name: &str) -> Result<Arc<Self>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// A kernel of the same program with the same arguments set (`clCloneKernel`).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// What argument `index` takes.
    ///
    /// # Errors
    /// `CL_INVALID_ARG_INDEX`.
    pub fn arg_kind(&self, _index: u32) -> Result<ArgKind> {
        Err(ClError::INVALID_OPERATION)
    }

    /// `clSetKernelArg`.
    ///
    /// # Errors
    /// `CL_INVALID_ARG_INDEX`, `_VALUE`, `_SIZE`, `CL_INVALID_MEM_OBJECT` where the table tells.
    pub fn set_arg(&self, _index: u32, _value: ArgValue<'_>) -> Result<()> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Its program.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// What the runtime says of it.
    pub fn info(&self) -> &KernelInfo {
        &self.info
    }

    /// Its work-group limits on `device`; `None` if it isn't built for that.
    pub fn work_group_info(&self, _device: &Arc<Device>) -> Option<WorkGroupInfo> {
        None
    }
}
