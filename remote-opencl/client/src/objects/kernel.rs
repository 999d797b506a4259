//! Kernels: their argument tables, and the values set so far.
//!
//! Arguments are captured at enqueue; only those that changed since the kernel's last launch are sent.

mod arguments;

pub use arguments::ArgValue;
pub(crate) use arguments::{Held, Other};

use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::objects::kernel_info::{ArgKind, KernelInfo, WorkGroupInfo};
use crate::objects::platform::Device;
use crate::objects::program::Program;
use crate::objects::usm::IndirectLaunch;
use crate::session::check_status;
use arguments::{Arg, Value};
use bytes::Bytes;
use fpga_protocol::v1::{self, call::Method, reply};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

/// A kernel.
#[derive(Debug)]
pub struct Kernel {
    id: u64,
    program: Arc<Program>,
    info: Arc<KernelInfo>,
    args: Mutex<Vec<Arg>>,
    /// The kinds of allocations that the kernel may use without an argument that points to them.
    indirect: AtomicU8,
}

/// Allocations that a kernel may use without an argument that points to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndirectAccess {
    /// `CL_KERNEL_EXEC_INFO_INDIRECT_HOST_ACCESS_INTEL`.
    Host,
    /// `CL_KERNEL_EXEC_INFO_INDIRECT_DEVICE_ACCESS_INTEL`.
    Device,
    /// `CL_KERNEL_EXEC_INFO_INDIRECT_SHARED_ACCESS_INTEL`.
    Shared,
    /// `CL_KERNEL_EXEC_INFO_USM_PTRS_INTEL` with at least one pointer.
    Listed,
}

impl Kernel {
    /// `clCreateKernel`. No round trip, since the build returned all kernels.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` before a successful build, `CL_INVALID_KERNEL_NAME` for an unknown name,
    /// `CL_OUT_OF_RESOURCES` if the manager is gone.
    pub fn new(program: &Arc<Program>, name: &str) -> Result<Arc<Self>> {
        let info = program.attach_kernel(name)?;
        let args = vec![Arg::default(); usize::try_from(info.num_args).unwrap_or(0)];
        Self::create(program, info, args, 0)
    }

    /// A kernel of the same program with the same arguments set (`clCloneKernel`).
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        let info = self.program.attach_kernel(&self.info.name)?;
        let args = lock(&self.args).clone().into_iter();
        let args = args.map(|arg| Arg { changed: arg.value.is_some(), ..arg }).collect();
        Self::create(&self.program, info, args, self.indirect.load(Ordering::Relaxed))
    }

    fn create(
        program: &Arc<Program>,
        info: Arc<KernelInfo>,
        args: Vec<Arg>,
        indirect: u8,
    ) -> Result<Arc<Self>> {
        let session = program.context().session();
        let kernel = Arc::new(Self {
            id: session.new_id(),
            program: Arc::clone(program),
            info,
            args: Mutex::new(args),
            indirect: AtomicU8::new(indirect),
        });
        session.cast(Method::CreateKernel(v1::CreateKernel {
            kernel: kernel.id,
            program: program.id(),
            name: kernel.info.name.clone(),
        }))?;
        Ok(kernel)
    }

    /// The kind of value that argument `index` takes.
    ///
    /// # Errors
    /// `CL_INVALID_ARG_INDEX` if there is no such argument.
    pub fn arg_kind(&self, index: u32) -> Result<ArgKind> {
        if index >= self.info.num_args {
            return Err(ClError::INVALID_ARG_INDEX);
        }
        Ok(self.info.arg_kind(index))
    }

    /// `clSetKernelArg`.
    ///
    /// # Errors
    /// `CL_INVALID_ARG_INDEX`, and, where the argument's type is known, `CL_INVALID_ARG_VALUE`,
    /// `CL_INVALID_ARG_SIZE`, `CL_INVALID_MEM_OBJECT`, `CL_INVALID_SAMPLER` or `CL_INVALID_DEVICE_QUEUE`. The last
    /// three also for an object of another context.
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

    /// Notes whether the kernel may use allocations without an argument that points to them (`clSetKernelExecInfo`).
    pub fn set_indirect(&self, access: IndirectAccess, is_on: bool) {
        let bit = 1 << access as u8;
        if is_on {
            self.indirect.fetch_or(bit, Ordering::Relaxed);
        } else {
            self.indirect.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// The program of the kernel.
    pub fn program(&self) -> &Arc<Program> {
        &self.program
    }

    /// The properties of the kernel.
    pub fn info(&self) -> &KernelInfo {
        &self.info
    }

    /// Work-group limits on `device`, including the local memory of the arguments set now; `None` if the kernel
    /// isn't built for `device`.
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

    /// `clGetKernelSubGroupInfo` with the sizes in `input`; `room` is the size of the application's buffer in bytes.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` if `device` is not in the context, and the errors of the manager's runtime.
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

    /// Passes the changed arguments, and all objects among the arguments, to `enqueue`. If `enqueue` succeeds the
    /// arguments count as sent. The lock held meanwhile makes launches of one kernel sequential, so that changes
    /// arrive in order.
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
        if self.indirect.load(Ordering::Relaxed) != 0 {
            held.others.push(Other::Indirect(IndirectLaunch::new(self.program.context())));
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
        // In a forked child another thread may have held the lock during the fork; it would never be released.
        if self.program.context().session().is_own() {
            self.program.detach_kernel();
        }
        self.program.context().session().release(self.id);
    }
}
