//! Kernels: their argument tables, and the values set so far.
//!
//! Arguments are snapshotted at enqueue, and only those that changed since the kernel's last launch travel.

mod arguments;
mod info;

pub use arguments::{ArgKind, ArgValue};
pub(crate) use arguments::{Held, Other};
pub use info::{ArgInfo, KernelInfo, WorkGroupInfo};

use crate::context::check_status;
use crate::error::{ClError, Result};
use crate::platform::Device;
use crate::program::Program;
use crate::sync::lock;
use arguments::{Arg, Value};
use bytes::Bytes;
use fpga_protocol::v1::{self, call::Method, reply};
use std::sync::{Arc, Mutex};

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    id: u64,
    program: Arc<Program>,
    info: Arc<KernelInfo>,
    args: Mutex<Vec<Arg>>,
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
        Ok(self.info.arg_kind(index))
    }

    /// `clSetKernelArg`.
    ///
    /// # Errors
    /// `CL_INVALID_ARG_INDEX`, `_VALUE`, `_SIZE`, `CL_INVALID_MEM_OBJECT` where the table tells.
    pub fn set_arg(&self, index: u32, value: ArgValue<'_>) -> Result<()> {
        arguments::check(self.arg_kind(index)?, &value)?;
        let value = Value::of(value, self.program.context())?;
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

    /// Its work-group limits on `device`, with the local memory of its arguments as they are set now; `None` if it isn't
    /// built for that.
    pub fn work_group_info(&self, device: &Arc<Device>) -> Option<WorkGroupInfo> {
        if !self.program.context().has(device) {
            return None;
        }
        let mut info = self.info.work_group(device.id())?;
        for (index, arg) in (0..).zip(lock(&self.args).iter()) {
            let kind = self.info.arg_kind(index);
            let bytes = arg.value.as_ref().map_or(0, |value| value.local_bytes(kind));
            info.local_mem_size = info.local_mem_size.saturating_add(bytes);
        }
        Some(info)
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
