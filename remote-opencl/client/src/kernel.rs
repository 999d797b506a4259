//! Kernels: their argument tables, and the values set so far.
//!
//! Arguments are snapshotted at enqueue, and only those that changed since the kernel's last launch travel.

use crate::arg_types::scalar_size;
use crate::buffer::Buffer;
use crate::cl;
use crate::context::check_status;
use crate::device_queue::DeviceQueue;
use crate::error::{ClError, Result};
use crate::image::Image;
use crate::pipe::Pipe;
use crate::platform::Device;
use crate::program::Program;
use crate::sampler::Sampler;
use crate::sync::lock;
use bytes::Bytes;
use fpga_protocol::v1::{self, call::Method, kernel_arg, reply};
use std::sync::{Arc, Mutex, Weak};

/// Size of a `cl_mem` on the host, which `clSetKernelArg` names for a buffer.
const HANDLE_BYTES: u64 = 8;

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    id: u64,
    program: Arc<Program>,
    info: Arc<KernelInfo>,
    args: Mutex<Vec<Arg>>,
}

#[derive(Debug, Clone, Default)]
struct Arg {
    value: Option<Value>,
    changed: bool,
}

#[derive(Debug, Clone)]
enum Value {
    Scalar(Bytes),
    /// Users may not rely on a kernel to retain what its arguments are: a buffer that they let go is gone, and its
    /// destructor callbacks run, whatever kernels it was given to.
    Buffer(u64, Weak<Buffer>),
    Image(u64, Weak<Image>),
    Sampler(u64, Weak<Sampler>),
    Pipe(u64, Weak<Pipe>),
    DeviceQueue(u64, Weak<DeviceQueue>),
    NullOfSize(u64),
}

/// What a launch keeps until it has ended.
#[derive(Debug, Default)]
pub(crate) struct Held {
    pub(crate) buffers: Vec<Arc<Buffer>>,
    pub(crate) images: Vec<Arc<Image>>,
    pub(crate) others: Vec<Other>,
}

/// An object that is held and not looked at.
#[derive(Debug)]
#[expect(dead_code, reason = "held, not looked at")]
pub(crate) enum Other {
    Sampler(Arc<Sampler>),
    Pipe(Arc<Pipe>),
    DeviceQueue(Arc<DeviceQueue>),
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
    work_groups: Vec<(u64, WorkGroupInfo)>,
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
    /// An image.
    Image,
    /// A sampler.
    Sampler,
    /// A pipe.
    Pipe,
    /// A queue on the device.
    DeviceQueue,
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
    /// An image.
    Image(Arc<Image>),
    /// A sampler.
    Sampler(Arc<Sampler>),
    /// A pipe.
    Pipe(Arc<Pipe>),
    /// A queue on the device.
    DeviceQueue(Arc<DeviceQueue>),
    /// A size and NULL: local memory, or a NULL buffer where the size is that of a handle.
    NullOfSize(u64),
}

impl Kernel {
    /// `clCreateKernel`. No round trip: the build told of all kernels.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` before a successful build, `CL_INVALID_KERNEL_NAME`.
    pub fn new(program: &Arc<Program>, name: &str) -> Result<Arc<Self>> {
        let info = program.attach_kernel(name)?;
        let args = vec![Arg::default(); usize::try_from(info.num_args).unwrap_or(0)];
        Self::create(program, info, args)
    }

    /// A kernel of the same program with the same arguments set (`clCloneKernel`).
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        let info = self.program.attach_kernel(&self.info.name)?;
        let args = lock(&self.args).clone().into_iter();
        let args = args.map(|arg| Arg { changed: arg.value.is_some(), ..arg }).collect();
        Self::create(&self.program, info, args)
    }

    fn create(program: &Arc<Program>, info: Arc<KernelInfo>, args: Vec<Arg>) -> Result<Arc<Self>> {
        let session = program.context().session();
        let kernel = Arc::new(Self {
            id: session.new_id(),
            program: Arc::clone(program),
            info,
            args: Mutex::new(args),
        });
        session.cast(Method::CreateKernel(v1::CreateKernel {
            kernel: kernel.id,
            program: program.id(),
            name: kernel.info.name.clone(),
        }))?;
        Ok(kernel)
    }

    /// What argument `index` takes.
    ///
    /// # Errors
    /// `CL_INVALID_ARG_INDEX`.
    pub fn arg_kind(&self, index: u32) -> Result<ArgKind> {
        if index >= self.info.num_args {
            return Err(ClError::INVALID_ARG_INDEX);
        }
        let info = usize::try_from(index).ok().and_then(|index| self.info.args.get(index));
        Ok(info.map_or(ArgKind::Unknown, ArgInfo::kind))
    }

    /// `clSetKernelArg`.
    ///
    /// # Errors
    /// `CL_INVALID_ARG_INDEX`, `_VALUE`, `_SIZE`, `CL_INVALID_MEM_OBJECT` where the table tells.
    pub fn set_arg(&self, index: u32, value: ArgValue<'_>) -> Result<()> {
        check(self.arg_kind(index)?, &value)?;
        let value = match value {
            ArgValue::Scalar(bytes) => Value::Scalar(Bytes::copy_from_slice(bytes)),
            ArgValue::NullOfSize(size) => Value::NullOfSize(size),
            ArgValue::Buffer(buffer) if Arc::ptr_eq(buffer.context(), self.program.context()) => {
                Value::Buffer(buffer.id(), Arc::downgrade(&buffer))
            }
            ArgValue::Image(image) if Arc::ptr_eq(image.context(), self.program.context()) => {
                Value::Image(image.id(), Arc::downgrade(&image))
            }
            ArgValue::Sampler(sampler) if Arc::ptr_eq(sampler.context(), self.program.context()) => {
                Value::Sampler(sampler.id(), Arc::downgrade(&sampler))
            }
            ArgValue::Pipe(pipe) if Arc::ptr_eq(pipe.context(), self.program.context()) => {
                Value::Pipe(pipe.id(), Arc::downgrade(&pipe))
            }
            ArgValue::DeviceQueue(queue) if Arc::ptr_eq(queue.context(), self.program.context()) => {
                Value::DeviceQueue(queue.id(), Arc::downgrade(&queue))
            }
            ArgValue::DeviceQueue(_) => return Err(ClError::INVALID_DEVICE_QUEUE),
            ArgValue::Buffer(_) | ArgValue::Image(_) | ArgValue::Pipe(_) => {
                return Err(ClError::INVALID_MEM_OBJECT);
            }
            ArgValue::Sampler(_) => return Err(ClError::INVALID_SAMPLER),
        };
        let index = usize::try_from(index).map_err(|_| ClError::INVALID_ARG_INDEX)?;
        let mut args = lock(&self.args);
        let arg = args.get_mut(index).ok_or(ClError::INVALID_ARG_INDEX)?;
        arg.changed |= arg.value.as_ref().is_none_or(|old| !old.is(&value));
        arg.value = Some(value);
        Ok(())
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
    pub fn work_group_info(&self, device: &Arc<Device>) -> Option<WorkGroupInfo> {
        if !self.program.context().has(device) {
            return None;
        }
        let mut work_groups = self.info.work_groups.iter();
        work_groups.find(|(id, _)| *id == device.id()).map(|(_, info)| info.clone())
    }

    /// `clGetKernelSubGroupInfo`: the answer to a question with these sizes, for which there is that much room.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE`, the runtime's.
    pub fn sub_group_info(
        &self,
        device: &Arc<Device>,
        param: u32,
        input: &[usize],
        room: u32,
    ) -> Result<Bytes> {
        if !self.program.context().has(device) {
            return Err(ClError::INVALID_DEVICE);
        }
        let get = v1::GetKernelSubGroupInfo {
            kernel: self.id,
            device: device.id(),
            param,
            input: input.iter().map(|size| *size as u64).collect(),
            room,
        };
        let reply = self.program.context().session().call(Method::GetKernelSubGroupInfo(get))?;
        check_status(reply.status)?;
        match reply.result {
            Some(reply::Result::Info(info)) => Ok(info.value),
            _ => Err(ClError::OUT_OF_RESOURCES),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Hands the changed arguments, and all objects among the arguments, to `enqueue`; they count as sent where that
    /// succeeds. Launches of one kernel are enqueued one after the other, so that changes arrive in order.
    pub(crate) fn launch<T>(&self, enqueue: impl FnOnce(Vec<v1::KernelArg>, Held) -> Result<T>) -> Result<T> {
        let mut args = lock(&self.args);
        let mut changed = Vec::new();
        let mut held = Held::default();
        for (index, arg) in (0u32..).zip(args.iter()) {
            let value = arg.value.as_ref().ok_or(ClError::INVALID_KERNEL_ARGS)?;
            held.hold(value).ok_or(ClError::INVALID_KERNEL_ARGS)?;
            if arg.changed {
                changed.push(v1::KernelArg { index, value: Some(value.to_message()) });
            }
        }
        let result = enqueue(changed, held)?;
        for arg in args.iter_mut() {
            arg.changed = false;
        }
        Ok(result)
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // In a forked child the lock may be held for ever.
        if self.program.context().session().is_own() {
            self.program.detach_kernel();
        }
        self.program.context().session().release(self.id);
    }
}

impl Held {
    /// `None` where the object is gone.
    fn hold(&mut self, value: &Value) -> Option<()> {
        match value {
            Value::Buffer(_, buffer) => self.buffers.push(buffer.upgrade()?),
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
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Scalar(a), Self::Scalar(b)) => a == b,
            (Self::Buffer(a, _), Self::Buffer(b, _))
            | (Self::Image(a, _), Self::Image(b, _))
            | (Self::Sampler(a, _), Self::Sampler(b, _))
            | (Self::Pipe(a, _), Self::Pipe(b, _))
            | (Self::DeviceQueue(a, _), Self::DeviceQueue(b, _))
            | (Self::NullOfSize(a), Self::NullOfSize(b)) => a == b,
            _ => false,
        }
    }

    fn to_message(&self) -> kernel_arg::Value {
        match self {
            Self::Scalar(bytes) => kernel_arg::Value::Scalar(bytes.clone()),
            Self::Buffer(id, _) => kernel_arg::Value::Buffer(*id),
            Self::Image(id, _) => kernel_arg::Value::Image(*id),
            Self::Sampler(id, _) => kernel_arg::Value::Sampler(*id),
            Self::Pipe(id, _) => kernel_arg::Value::Pipe(*id),
            Self::DeviceQueue(id, _) => kernel_arg::Value::DeviceQueue(*id),
            Self::NullOfSize(size) => kernel_arg::Value::NullOfSize(*size),
        }
    }
}

/// Checks a value against what the argument takes.
fn check(kind: ArgKind, value: &ArgValue<'_>) -> Result<()> {
    let wrong_size = Err(ClError::INVALID_ARG_SIZE);
    let wrong_value = Err(ClError::INVALID_ARG_VALUE);
    match kind {
        ArgKind::Unknown => Ok(()),
        ArgKind::Buffer => match value {
            ArgValue::Buffer(_) | ArgValue::NullOfSize(HANDLE_BYTES) => Ok(()),
            ArgValue::Scalar(bytes) if bytes.len() as u64 == HANDLE_BYTES => Err(ClError::INVALID_MEM_OBJECT),
            ArgValue::Scalar(_) | ArgValue::NullOfSize(_) => wrong_size,
            _ => Err(ClError::INVALID_MEM_OBJECT),
        },
        ArgKind::Image => match value {
            ArgValue::Image(_) => Ok(()),
            ArgValue::Scalar(bytes) if bytes.len() as u64 != HANDLE_BYTES => wrong_size,
            ArgValue::NullOfSize(size) if *size != HANDLE_BYTES => wrong_size,
            _ => Err(ClError::INVALID_MEM_OBJECT),
        },
        ArgKind::Pipe => match value {
            ArgValue::Pipe(_) => Ok(()),
            ArgValue::Scalar(bytes) if bytes.len() as u64 != HANDLE_BYTES => wrong_size,
            ArgValue::NullOfSize(size) if *size != HANDLE_BYTES => wrong_size,
            _ => Err(ClError::INVALID_MEM_OBJECT),
        },
        ArgKind::DeviceQueue => match value {
            ArgValue::DeviceQueue(_) => Ok(()),
            ArgValue::Scalar(bytes) if bytes.len() as u64 != HANDLE_BYTES => wrong_size,
            ArgValue::NullOfSize(size) if *size != HANDLE_BYTES => wrong_size,
            _ => Err(ClError::INVALID_DEVICE_QUEUE),
        },
        ArgKind::Sampler => match value {
            ArgValue::Sampler(_) => Ok(()),
            ArgValue::Scalar(bytes) if bytes.len() as u64 != HANDLE_BYTES => wrong_size,
            ArgValue::NullOfSize(size) if *size != HANDLE_BYTES => wrong_size,
            _ => Err(ClError::INVALID_SAMPLER),
        },
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

impl KernelInfo {
    pub(crate) fn new(info: v1::KernelInfo) -> Self {
        let arg = |arg: v1::KernelArgInfo| ArgInfo {
            address_qualifier: arg.address_qualifier,
            access_qualifier: arg.access_qualifier,
            type_name: arg.type_name,
            type_qualifier: arg.type_qualifier,
            name: arg.name,
        };
        let work_group = |it: v1::KernelWorkGroupInfo| {
            let compiled = it.compile_work_group_size.try_into().unwrap_or_default();
            let info = WorkGroupInfo {
                work_group_size: it.work_group_size,
                compile_work_group_size: compiled,
                local_mem_size: it.local_mem_size,
                preferred_multiple: it.preferred_multiple,
                private_mem_size: it.private_mem_size,
            };
            (it.device, info)
        };
        Self {
            name: info.name,
            // Bounded here, so that a nonsensical number can't take all memory.
            num_args: info.num_args.min(4096),
            attributes: info.attributes,
            args: info.args.into_iter().map(arg).collect(),
            work_groups: info.work_groups.into_iter().map(work_group).collect(),
        }
    }
}

impl ArgInfo {
    fn kind(&self) -> ArgKind {
        match self.address_qualifier {
            _ if self.type_qualifier & cl::KERNEL_ARG_TYPE_PIPE != 0 => ArgKind::Pipe,
            _ if self.type_name == "queue_t" => ArgKind::DeviceQueue,
            _ if ![0, cl::KERNEL_ARG_ACCESS_NONE].contains(&self.access_qualifier) => ArgKind::Image,
            _ if self.type_name == "sampler_t" => ArgKind::Sampler,
            cl::KERNEL_ARG_ADDRESS_GLOBAL | cl::KERNEL_ARG_ADDRESS_CONSTANT => ArgKind::Buffer,
            cl::KERNEL_ARG_ADDRESS_LOCAL => ArgKind::Local,
            cl::KERNEL_ARG_ADDRESS_PRIVATE => ArgKind::Scalar(scalar_size(&self.type_name)),
            _ => ArgKind::Unknown,
        }
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

    #[test]
    fn images_and_samplers_are_not_taken_for_numbers() {
        let arg = |address_qualifier, access_qualifier, type_name: &str| ArgInfo {
            address_qualifier,
            access_qualifier,
            type_name: type_name.into(),
            type_qualifier: 0,
            name: String::new(),
        };
        let none = cl::KERNEL_ARG_ACCESS_NONE;
        let private = cl::KERNEL_ARG_ADDRESS_PRIVATE;
        assert_eq!(arg(private, none, "float4").kind(), ArgKind::Scalar(Some(16)));
        assert_eq!(arg(private, none, "sampler_t").kind(), ArgKind::Sampler);
        assert_eq!(arg(cl::KERNEL_ARG_ADDRESS_GLOBAL, 0x11A0, "image2d_t").kind(), ArgKind::Image);
        assert_eq!(arg(cl::KERNEL_ARG_ADDRESS_GLOBAL, none, "float*").kind(), ArgKind::Buffer);
    }
}
