//! The calls of a session that are not commands (B-2), such as creating objects. They run at once, in the
//! order of arrival.

mod binaries;
mod builds;
mod images;
mod memory;
mod opencl2;
mod usm;

pub use binaries::{Decided, LoadedProgram, ProgramLoad, Waiting};
pub use builds::Build;

use crate::config::Config;
use crate::context::Context;
use crate::gate::{Asker, ReconfigurationRefusal};
use crate::images::Sampler;
use crate::inventory::{Device, Inventory};
use crate::kernel::Kernel;
use crate::objects::{AddError, Object, Objects};
use crate::outgoing::Outgoing;
use crate::programs::Program;
use crate::queue::Queue;
use crate::quotas::Account;
use crate::segments::{CreateError, FdChannel};
use crate::sub_devices::{ID_BIT, SubDevice};
use crate::transfers::{TransferError, Transfers};
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::reply::Result as Answer;
use fpga_vendor::{ClError, ClResult};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// Out-of-order execution and profiling.
const QUEUE_PROPERTIES: u64 = 0b11;

/// The parts of a session and of the manager that calls work on.
#[derive(Debug)]
pub struct Calls<'a> {
    /// The parts of the manager.
    pub config: &'a Config,
    /// The tenant's account.
    pub account: &'a Account,
    /// The devices of the runtime.
    pub inventory: &'a Inventory,
    /// The session's objects.
    pub objects: &'a mut Objects,
    /// The session's transfers and segments.
    pub transfers: &'a mut Transfers,
    /// The way to the client, for binaries.
    pub outgoing: &'a mut Outgoing,
    /// The socket over which the client gets descriptors, if it has one.
    pub side: Option<&'a FdChannel>,
    /// Asks the gate for reconfigurations.
    pub asker: &'a Asker,
}

/// The result of a call.
pub enum Outcome {
    /// The call has its reply.
    Done(v1::Reply),
    /// A build has to run on a thread of its own; later messages wait for it.
    Build(Box<Build>),
    /// The program's binaries are complete, and making the program loads the board: [`Calls::load`] does it
    /// once the session has the slot.
    Load(Box<ProgramLoad>),
    /// The gate has to be asked on a thread of its own; [`Calls::decided`] continues with the answer.
    Ask(Box<Waiting>, Box<dyn FnOnce() -> Result<(), ReconfigurationRefusal> + Send>),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(reply) => f.debug_tuple("Done").field(reply).finish(),
            Self::Build(build) => f.debug_tuple("Build").field(build).finish(),
            Self::Load(load) => f.debug_tuple("Load").field(load).finish(),
            Self::Ask(waiting, _) => f.debug_tuple("Ask").field(waiting).finish(),
        }
    }
}

/// A breach of the protocol, which ends the session.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The object's id is invalid.
    #[error(transparent)]
    Add(#[from] AddError),
    /// The data is invalid.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// The segment's id or size is invalid.
    #[error(transparent)]
    Segment(CreateError),
    /// The call has no method that this manager knows.
    #[error("a call has no method that this device manager knows")]
    NoMethod,
}

type Answered = (ClResult<()>, Option<Answer>);

impl Calls<'_> {
    /// Runs a call. Calls about events are handled by the session.
    ///
    /// # Errors
    /// [`CallError`], if the client breaks the protocol.
    pub fn run(&mut self, id: u64, method: Method) -> Result<Outcome, CallError> {
        let (status, result) = match method {
            Method::CreateContext(create) => self.create_context(&create)?,
            Method::CreateQueue(create) => {
                let made = self.queue(&create);
                self.keep(create.queue, made)?
            }
            Method::CreateBuffer(create) => self.create_buffer(create)?,
            Method::CreateSubBuffer(create) => {
                let made = self.sub_buffer(&create);
                self.keep(create.buffer, made)?
            }
            Method::CreateSegment(create) => (self.segment(&create)?, None),
            Method::CreatePlacedSegment(create) => self.placed_segment(&create)?,
            Method::CreateProgramWithSource(create) => {
                self.create_program(create.program, create.context, create.source, Program::with_source)?
            }
            Method::CreateProgramWithBinary(create) => return self.create_program_with_binary(id, &create),
            Method::ProvideBinary(provide) => return self.provide_binary(id, provide),
            Method::BuildProgram(build) => match self.build(id, build) {
                Ok(build) => return Ok(Outcome::Build(Box::new(build))),
                Err(error) => (Err(error), Some(Answer::Build(v1::BuildResult::default()))),
            },
            Method::CompileProgram(compile) => match self.compile(id, compile) {
                Ok(build) => return Ok(Outcome::Build(Box::new(build))),
                Err(error) => (Err(error), Some(Answer::Build(v1::BuildResult::default()))),
            },
            Method::LinkProgram(link) => match self.link(id, link)? {
                Ok(build) => return Ok(Outcome::Build(Box::new(build))),
                Err(error) => (Err(error), Some(Answer::Build(v1::BuildResult::default()))),
            },
            Method::CreateImage(create) => self.create_image(create)?,
            Method::CreateSampler(create) => {
                let context = self.objects.context(create.context);
                let made = context.and_then(|context| Sampler::new(context, &create));
                self.keep(create.sampler, made.map(|sampler| Object::Sampler(Arc::new(sampler))))?
            }
            Method::GetImageFormats(get) => self.image_formats(&get),
            Method::CreatePipe(create) => {
                let made = self.pipe(&create);
                self.keep(create.pipe, made)?
            }
            Method::ReadPipe(read) => self.read_pipe(&read),
            Method::WritePipe(write) => self.host_end(write.pipe, |()| None, |end| end.write(&write.packet)),
            Method::MapPipe(map) => self.map_pipe(&map),
            Method::UnmapPipe(unmap) => {
                self.host_end(unmap.pipe, |()| None, |end| end.fill(unmap.map, &unmap.packets))
            }
            Method::CreateDeviceQueue(create) => {
                let made = self.device_queue(&create);
                self.keep(create.queue, made)?
            }
            Method::SetDefaultDeviceQueue(set) => (self.set_default_queue(&set), None),
            Method::GetKernelSubGroupInfo(get) => self.sub_group_info(&get),
            Method::CreateSubDevices(create) => self.create_sub_devices(&create)?,
            Method::CreateProgramWithIl(create) => {
                self.create_program(create.program, create.context, create.il, Program::with_il)?
            }
            Method::CreateProgramWithBuiltInKernels(create) => self.create_program_with_built_in(&create)?,
            Method::SetSpecializationConstant(set) => {
                let program = self.objects.program(set.program);
                (program.and_then(|program| program.set_constant(set.id, &set.value)), None)
            }
            Method::GetProgramBinaries(get) => self.binaries(get.program),
            Method::CreateKernel(create) => self.create_kernel(id, &create)?,
            Method::SetUserEvent(_)
            | Method::CreateUserEvent(_)
            | Method::Release(_)
            | Method::OpenRing(_) => {
                return Err(CallError::NoMethod);
            }
        };
        Ok(Outcome::Done(reply(id, status, result)))
    }

    fn keep(&mut self, id: u64, made: ClResult<Object>) -> Result<Answered, CallError> {
        let (status, object) = match made {
            Ok(object) => (Ok(()), object),
            Err(error) => (Err(error), Object::Failed(error.0)),
        };
        self.objects.add(id, object)?;
        Ok((status, None))
    }

    fn create_context(&mut self, create: &v1::CreateContext) -> Result<Answered, CallError> {
        let found = create.devices.iter().map(|id| self.device(*id)).collect::<ClResult<Vec<_>>>();
        let made = match found {
            Ok(found) if found.is_empty() => Err(ClError::INVALID_VALUE),
            Ok(found) if found.iter().any(|(device, _)| device.platform != found[0].0.platform) => {
                Err(ClError::INVALID_DEVICE)
            }
            Ok(found) => {
                let (devices, sub_devices): (_, Vec<_>) = found.into_iter().unzip();
                let sub_devices = sub_devices.into_iter().flatten().collect();
                Context::new(devices, sub_devices).map(|context| Object::Context(Arc::new(context)))
            }
            Err(error) => Err(error),
        };
        self.keep(create.context, made)
    }

    /// A device of the inventory or a sub-device of the session.
    fn device(&self, id: u64) -> ClResult<(Device, Option<Arc<SubDevice>>)> {
        if id & ID_BIT != 0 {
            let sub_device = self.objects.sub_device(id)?;
            return Ok((sub_device.device.clone(), Some(sub_device)));
        }
        self.inventory.device(id).map(|device| (device, None)).ok_or(ClError::INVALID_DEVICE)
    }

    fn queue(&self, create: &v1::CreateQueue) -> ClResult<Object> {
        let context = self.objects.context(create.context)?;
        let device = of_context(&context, create.device)?;
        if create.properties & !QUEUE_PROPERTIES != 0 {
            return Err(ClError::INVALID_QUEUE_PROPERTIES);
        }
        Ok(Object::Queue(Arc::new(Queue::new(context, device, create.properties)?)))
    }

    fn create_kernel(&mut self, id: u64, create: &v1::CreateKernel) -> Result<Answered, CallError> {
        let program = self.objects.program(create.program);
        let made = program.and_then(|program| {
            let kernel = program.kernel(&create.name)?;
            Ok((program, kernel))
        });
        match made {
            Ok((program, kernel)) => {
                // Call 0 has no reply.
                let info = (id != 0).then(|| program.describe(&kernel));
                let kernel = Object::Kernel(Arc::new(Mutex::new(Kernel::new(program, kernel))));
                self.objects.add(create.kernel, kernel)?;
                Ok((Ok(()), info.map(Answer::Kernel)))
            }
            Err(error) => self.keep(create.kernel, Err(error)),
        }
    }
}

/// The device of the context with this id.
fn of_context(context: &Context, id: u64) -> ClResult<Device> {
    let device = context.devices.iter().find(|device| device.id == id);
    device.cloned().ok_or(ClError::INVALID_DEVICE)
}

/// The reply to call `id`.
#[must_use]
pub fn reply(id: u64, status: ClResult<()>, result: Option<Answer>) -> v1::Reply {
    let status = status.map_or_else(|error| error.0, |()| opencl_sys::CL_SUCCESS);
    v1::Reply { id, status, result }
}
