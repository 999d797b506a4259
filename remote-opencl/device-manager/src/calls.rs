//! The context and information methods of a session (B-2): they run at once, in the order of arrival.

mod newer;

use crate::arguments::Kernel;
use crate::budget::HARD_LIMIT;
use crate::config::Config;
use crate::gate::{Asked, Asker, Refusal};
use crate::images::{Image, Sampler};
use crate::inventory::{Device, Inventory};
use crate::metrics::{DataPath, Direction, Storage};
use crate::objects::{AddError, Buffer, Context, Object, Objects, Queue};
use crate::outgoing::Outgoing;
use crate::programs::{Program, digest};
use crate::quotas::{Account, Resource};
use crate::segments::{CreateError, Side, Slice};
use crate::store::{StoreError, digest_of};
use crate::sub_devices::{ID_BIT, SubDevice};
use crate::transfers::{TransferError, Transfers, join};
use crate::vendor::{ClError, ClResult, Format, image_formats};
use bytes::Bytes;
use fpga_protocol::segments::check_storage;
use fpga_protocol::v1;
use fpga_protocol::v1::call::Method;
use fpga_protocol::v1::reply::Result as Answer;
use opencl_sys::{
    CL_INVALID_BINARY, CL_INVALID_BUFFER_SIZE, CL_INVALID_DEVICE, CL_INVALID_OPERATION,
    CL_INVALID_QUEUE_PROPERTIES, CL_INVALID_VALUE, CL_OUT_OF_RESOURCES,
};
use std::fmt;
use std::sync::{Arc, Mutex};

/// `CL_MEM_READ_WRITE`, `CL_MEM_WRITE_ONLY` and `CL_MEM_READ_ONLY`: what a kernel does. The flags of host access are the
/// client's to keep, since its first data comes by a write.
const DEVICE_FLAGS: u64 = 0b111;
/// `CL_MEM_USE_HOST_PTR` and `CL_MEM_COPY_HOST_PTR`: the client's alone.
const HOST_POINTER_FLAGS: u64 = (1 << 3) | (1 << 5);
/// Out-of-order and profiling.
const QUEUE_PROPERTIES: u64 = 0b11;

/// What of a session the methods work on.
#[derive(Debug)]
pub struct Calls<'a> {
    /// The manager's parts.
    pub config: &'a Config,
    /// What the tenant has.
    pub account: &'a Account,
    /// Its devices.
    pub inventory: &'a Inventory,
    /// The session's objects.
    pub objects: &'a mut Objects,
    /// Its open transfers.
    pub transfers: &'a mut Transfers,
    /// For binaries.
    pub outgoing: &'a mut Outgoing,
    /// Where its client gets descriptors, if it can.
    pub side: Option<&'a Side>,
    /// Whom it asks for reconfigurations.
    pub asker: &'a Asker,
}

/// What a method came to.
pub enum Outcome {
    /// It is done.
    Done(v1::Reply),
    /// A build has to run on a thread of its own; what comes after it waits.
    Build(Box<Build>),
    /// A question has to be asked on a thread of its own; [`Calls::decided`] goes on with the answer.
    Ask(Box<Waiting>, Box<dyn FnOnce() -> Result<(), Refusal> + Send>),
}

impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Done(reply) => f.debug_tuple("Done").field(reply).finish(),
            Self::Build(build) => f.debug_tuple("Build").field(build).finish(),
            Self::Ask(waiting, _) => f.debug_tuple("Ask").field(waiting).finish(),
        }
    }
}

/// A program that waits for the gate.
#[derive(Debug)]
pub struct Waiting {
    call: u64,
    id: u64,
    program: Arc<Program>,
}

/// A build to run.
#[derive(Debug)]
pub struct Build {
    id: u64,
    program: Arc<Program>,
    options: String,
    step: Step,
    /// Asked where building makes a bitstream.
    asker: Asker,
}

/// Which part of a build.
#[derive(Debug)]
enum Step {
    /// All of it, for these devices.
    Build(Vec<Device>),
    /// Compilation alone, for these devices, with these headers.
    Compile(Vec<Device>, Vec<(String, Arc<Program>)>),
    /// Linking these.
    Link(Vec<Arc<Program>>),
}

impl Step {
    /// What the standard calls its failure.
    fn failure(&self) -> i32 {
        match self {
            Self::Build(_) => opencl_sys::CL_BUILD_PROGRAM_FAILURE,
            Self::Compile(..) => opencl_sys::CL_COMPILE_PROGRAM_FAILURE,
            Self::Link(_) => opencl_sys::CL_LINK_PROGRAM_FAILURE,
        }
    }
}

/// How a client breaks the protocol; the session ends.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// By an object's id.
    #[error(transparent)]
    Add(#[from] AddError),
    /// By its data.
    #[error(transparent)]
    Transfer(#[from] TransferError),
    /// By a segment's id or size.
    #[error(transparent)]
    Segment(CreateError),
    /// By a method that this manager does not know.
    #[error("a call has no method that this device manager knows")]
    NoMethod,
}

type Answered = (ClResult<()>, Option<Answer>);

impl Calls<'_> {
    /// Runs a method other than those of events, which are the session's.
    ///
    /// # Errors
    /// [`CallError`].
    pub fn run(&mut self, id: u64, method: Method) -> Result<Outcome, CallError> {
        let (status, result) = match method {
            Method::CreateContext(create) => self.create_context(&create)?,
            Method::CreateQueue(create) => {
                let made = self.queue(&create);
                self.keep(create.queue, made)?
            }
            Method::CreateBuffer(mut create) => {
                let initial = match create.initial.take() {
                    Some(data) => match self.transfers.take(Some(data)) {
                        Ok(pieces) => Some(join(pieces)),
                        Err(TransferError::OverQuota) => {
                            let refused = self.keep(create.buffer, Err(ClError(CL_OUT_OF_RESOURCES)))?;
                            return Ok(Outcome::Done(reply(id, refused.0, refused.1)));
                        }
                        Err(error) => return Err(error.into()),
                    },
                    None => None,
                };
                let storage = match &create.storage {
                    Some(range) => {
                        check_storage(range, create.size).map_err(TransferError::from)?;
                        Some(self.transfers.segments.slice(range).map_err(TransferError::from)?)
                    }
                    None => None,
                };
                let made = self.buffer(&create, initial.as_deref(), storage);
                self.keep(create.buffer, made)?
            }
            Method::CreateSubBuffer(create) => {
                let made = self.sub_buffer(&create);
                self.keep(create.buffer, made)?
            }
            Method::CreateSegment(create) => (self.segment(&create)?, None),
            Method::CreateProgramWithSource(create) => {
                let context = self.objects.context(create.context);
                let made = context
                    .and_then(|context| {
                        let charge = self.account.charge(Resource::Programs, 1)?;
                        let program = Program::with_source(context, &create.source, self.config.sources)?;
                        Ok(program.charged(charge))
                    })
                    .map(|program| Object::Program(Arc::new(program)));
                self.keep(create.program, made)?
            }
            Method::CreateProgramWithBinary(create) => return self.create_program_with_binary(id, &create),
            Method::ProvideBinary(provide) => self.provide_binary(provide)?,
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
            Method::CreateDeviceQueue(create) => {
                let made = self.device_queue(&create);
                self.keep(create.queue, made)?
            }
            Method::SetDefaultDeviceQueue(set) => (self.set_default_queue(&set), None),
            Method::GetKernelSubGroupInfo(get) => self.sub_group_info(&get),
            Method::CreateSubDevices(create) => self.create_sub_devices(&create)?,
            Method::CreateProgramWithIl(create) => {
                let context = self.objects.context(create.context);
                let made = context.and_then(|context| {
                    let charge = self.account.charge(Resource::Programs, 1)?;
                    let program = Program::with_il(context, &create.il, self.config.sources)?;
                    Ok(Object::Program(Arc::new(program.charged(charge))))
                });
                self.keep(create.program, made)?
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
            Ok(found) if found.is_empty() => Err(ClError(CL_INVALID_VALUE)),
            Ok(found) if found.iter().any(|(device, _)| device.platform != found[0].0.platform) => {
                Err(ClError(CL_INVALID_DEVICE))
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

    /// A device of the inventory, or of the session.
    fn device(&self, id: u64) -> ClResult<(Device, Option<Arc<SubDevice>>)> {
        if id & ID_BIT != 0 {
            let sub_device = self.objects.sub_device(id)?;
            return Ok((sub_device.device, Some(sub_device)));
        }
        self.inventory.device(id).map(|device| (device, None)).ok_or(ClError(CL_INVALID_DEVICE))
    }

    fn queue(&self, create: &v1::CreateQueue) -> ClResult<Object> {
        let context = self.objects.context(create.context)?;
        let device = of_context(&context, create.device)?;
        if create.properties & !QUEUE_PROPERTIES != 0 {
            return Err(ClError(CL_INVALID_QUEUE_PROPERTIES));
        }
        Ok(Object::Queue(Arc::new(Queue::new(context, device, create.properties)?)))
    }

    fn buffer(
        &self,
        create: &v1::CreateBuffer,
        initial: Option<&[u8]>,
        storage: Option<Slice>,
    ) -> ClResult<Object> {
        let context = self.objects.context(create.context)?;
        if create.flags & HOST_POINTER_FLAGS != 0 {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let size = usize::try_from(create.size).map_err(|_| ClError(CL_INVALID_BUFFER_SIZE))?;
        if size == 0 {
            return Err(ClError(CL_INVALID_BUFFER_SIZE));
        }
        let flags = create.flags & DEVICE_FLAGS;
        let one = self.account.charge(Resource::Buffers, 1)?;
        if let Some(slice) = storage {
            if initial.is_some() || !self.inventory.works_in_shared_memory() {
                return Err(ClError(CL_INVALID_VALUE));
            }
            // Its memory is on the segment's account.
            let buffer = Buffer::in_segment(context, flags, slice)?.charged([Some(one), None]);
            self.config.metrics.buffer_created(Storage::Shared, create.size);
            return Ok(Object::Buffer(Arc::new(buffer)));
        }
        let memory = self.account.charge(Resource::Memory, create.size)?;
        let buffer = match initial {
            Some(bytes) if bytes.len() != size => return Err(ClError(CL_INVALID_VALUE)),
            Some(bytes) => Buffer::with_contents(context, flags, bytes)?,
            None => Buffer::new(context, flags, size)?,
        };
        let buffer = buffer.charged([Some(one), Some(memory)]);
        self.config.metrics.buffer_created(Storage::Vendor, create.size);
        Ok(Object::Buffer(Arc::new(buffer)))
    }

    fn segment(&mut self, create: &v1::CreateSegment) -> Result<ClResult<()>, CallError> {
        let Some(side) = self.side else { return Ok(Err(ClError(CL_INVALID_OPERATION))) };
        let Ok(charge) = self.account.charge(Resource::Memory, create.size) else {
            // The client does without shared memory, and finds the limit again if it needs that much.
            return Ok(Err(ClError(CL_OUT_OF_RESOURCES)));
        };
        match self.transfers.segments.create(create.segment, create.size, Some(charge)) {
            Ok(fd) => Ok(side.pass(create.segment, &fd).map_err(|error| {
                self.transfers.segments.release(create.segment);
                tracing::warn!(%error, "A descriptor can't be passed");
                ClError(CL_OUT_OF_RESOURCES)
            })),
            Err(error @ (CreateError::Id(_) | CreateError::Size(_))) => Err(CallError::Segment(error)),
            Err(error) => {
                tracing::debug!(%error, "No segment");
                Ok(Err(ClError(CL_OUT_OF_RESOURCES)))
            }
        }
    }

    fn sub_buffer(&self, create: &v1::CreateSubBuffer) -> ClResult<Object> {
        let parent = self.objects.buffer(create.parent)?;
        let convert = |number| usize::try_from(number).map_err(|_| ClError(CL_INVALID_VALUE));
        let (origin, size) = (convert(create.origin)?, convert(create.size)?);
        if origin.checked_add(size).is_none_or(|end| end > parent.size) {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let one = self.account.charge(Resource::Buffers, 1)?;
        let region = Buffer::sub(&parent, create.flags & DEVICE_FLAGS, origin, size)?;
        Ok(Object::Buffer(Arc::new(region.charged([Some(one), None]))))
    }

    fn create_program_with_binary(
        &mut self,
        call: u64,
        create: &v1::CreateProgramWithBinary,
    ) -> Result<Outcome, CallError> {
        let context = self.objects.context(create.context);
        let program = context.and_then(|context| {
            let charge = self.account.charge(Resource::Programs, 1)?;
            Ok(Arc::new(Program::with_binaries(context, &create.binaries)?.charged(charge)))
        });
        let limit = self.account.upload_limit();
        let too_long = create.binaries.iter().any(|binary| binary.length > limit.min(HARD_LIMIT));
        if create.binaries.iter().any(|binary| binary.length > limit) {
            self.account.upload_refused();
        }
        let done = |(status, result)| Ok(Outcome::Done(reply(call, status, result)));
        let program = match program {
            Ok(_) if too_long => {
                return done(self.keep(create.program, Err(ClError(CL_OUT_OF_RESOURCES)))?);
            }
            Ok(program) => program,
            Err(error) => return done(self.keep(create.program, Err(error))?),
        };
        // What it is until it is known to be more.
        self.objects.add(create.program, Object::Failed(CL_OUT_OF_RESOURCES))?;
        let asked = self.asker.ask(program.digests());
        let waiting = Waiting { call, id: create.program, program };
        match asked {
            Asked::Decided(decided) => Ok(Outcome::Done(self.decided(waiting, decided))),
            Asked::Later(question) => Ok(Outcome::Ask(Box::new(waiting), question)),
        }
    }

    /// The gate has decided on a program's bitstreams.
    pub fn decided(&mut self, waiting: Waiting, decided: Result<(), Refusal>) -> v1::Reply {
        let Waiting { call, id, program } = waiting;
        if let Err(refusal) = decided {
            let binary_status = vec![CL_OUT_OF_RESOURCES; program.devices.len()];
            let result =
                v1::BinariesResult { binary_status, refusal: refusal.to_string(), ..Default::default() };
            return reply(call, Err(ClError(CL_OUT_OF_RESOURCES)), Some(Answer::Binaries(result)));
        }
        let (status, result) = self.complete(&program);
        // A program whose binaries are refused is none, and says so at every use.
        self.objects.settle(
            id,
            match status {
                Ok(()) => Object::Program(program),
                Err(error) => Object::Failed(error.0),
            },
        );
        reply(call, status, result)
    }

    fn provide_binary(&mut self, provide: v1::ProvideBinary) -> Result<Answered, CallError> {
        let bytes = match self.transfers.take(provide.data) {
            Ok(pieces) => join(pieces),
            Err(TransferError::OverQuota) => return Ok((Err(ClError(CL_OUT_OF_RESOURCES)), None)),
            Err(error) => return Err(error.into()),
        };
        self.config.metrics.count_bytes(Direction::Received, DataPath::Messages, bytes.len() as u64);
        let program = match self.objects.program(provide.program) {
            Ok(program) => program,
            Err(error) => return Ok((Err(error), None)),
        };
        if program.is_loaded() {
            return Ok((Err(ClError(CL_INVALID_OPERATION)), None));
        }
        // Only what was asked for is stored.
        let announced = digest(&provide.digest).filter(|digest| program.digests().contains(digest));
        let stored = match announced {
            Some(announced) => self.store(&program, announced, &bytes),
            None => Err(ClError(CL_INVALID_BINARY)),
        };
        Ok(match stored {
            Ok(()) => self.complete(&program),
            Err(error) => (Err(error), None),
        })
    }

    fn store(
        &self,
        program: &Program,
        announced: fpga_core::bitstream::Digest,
        bytes: &Bytes,
    ) -> ClResult<()> {
        if digest_of(bytes) != announced {
            return Err(ClError(CL_INVALID_BINARY));
        }
        // Copied: the pieces would keep the messages that they came in.
        let bytes = Bytes::copy_from_slice(bytes);
        self.config.store.insert_as(announced, bytes.clone()).map_err(|error: StoreError| {
            tracing::warn!(%announced, %error, "A bitstream can't be stored");
            ClError(CL_OUT_OF_RESOURCES)
        })?;
        program.keep_also(announced, bytes);
        Ok(())
    }

    /// Loads the program if all its binaries are here, else says which are missing.
    fn complete(&self, program: &Program) -> Answered {
        let mut missing: Vec<Bytes> = Vec::new();
        let mut present = Vec::new();
        for digest in program.digests() {
            match program.kept(digest).or_else(|| self.config.store.get(digest)) {
                Some(bytes) => present.push((*digest, bytes)),
                None if missing.iter().any(|other| other.as_ref() == digest.as_bytes()) => {}
                None => missing.push(Bytes::copy_from_slice(digest.as_bytes())),
            }
        }
        if !missing.is_empty() {
            // The store may evict them while the others come.
            program.keep(present);
            let result = v1::BinariesResult { missing, ..v1::BinariesResult::default() };
            return (Ok(()), Some(Answer::Binaries(result)));
        }
        let present: Vec<Bytes> = present.into_iter().map(|(_, bytes)| bytes).collect();
        let (status, binary_status) = program.load(&present);
        program.keep(Vec::new());
        let binary_types = program.binary_types();
        (
            status,
            Some(Answer::Binaries(v1::BinariesResult { binary_status, binary_types, ..Default::default() })),
        )
    }

    fn build(&self, id: u64, build: v1::BuildProgram) -> ClResult<Build> {
        let program = self.objects.program(build.program)?;
        program.vendor()?;
        let devices = program.chosen(&build.devices)?;
        Ok(Build {
            id,
            program,
            options: build.options,
            step: Step::Build(devices),
            asker: self.asker.clone(),
        })
    }

    fn compile(&self, id: u64, compile: v1::CompileProgram) -> ClResult<Build> {
        let program = self.objects.program(compile.program)?;
        program.vendor()?;
        let devices = program.chosen(&compile.devices)?;
        let mut headers = Vec::new();
        for header in compile.headers {
            headers.push((header.name, self.objects.program(header.program)?));
        }
        let (options, asker) = (compile.options, self.asker.clone());
        Ok(Build { id, program, options, step: Step::Compile(devices, headers), asker })
    }

    fn link(&mut self, id: u64, link: v1::LinkProgram) -> Result<ClResult<Build>, CallError> {
        let programs = link.programs.iter().map(|id| self.objects.program(*id)).collect::<ClResult<Vec<_>>>();
        let made = self.objects.context(link.context).and_then(|context| {
            let programs = programs?;
            let charge = self.account.charge(Resource::Programs, 1)?;
            let program = Program::to_link(context, &link.devices, &programs, self.config.sources)?;
            let program = program.charged(charge);
            Ok((Arc::new(program), programs))
        });
        match made {
            Ok((program, programs)) => {
                self.objects.add(link.program, Object::Program(program.clone()))?;
                let (options, asker) = (link.options, self.asker.clone());
                Ok(Ok(Build { id, program, options, step: Step::Link(programs), asker }))
            }
            Err(error) => {
                self.objects.add(link.program, Object::Failed(error.0))?;
                Ok(Err(error))
            }
        }
    }

    fn create_image(&mut self, mut create: v1::CreateImage) -> Result<Answered, CallError> {
        let initial = match create.initial.take() {
            Some(data) => match self.transfers.take(Some(data)) {
                Ok(pieces) => Some(join(pieces)),
                Err(TransferError::OverQuota) => {
                    return self.keep(create.image, Err(ClError(CL_OUT_OF_RESOURCES)));
                }
                Err(error) => return Err(error.into()),
            },
            None => None,
        };
        let made = self.image(&create, initial.as_deref());
        self.keep(create.image, made)
    }

    fn image(&self, create: &v1::CreateImage, initial: Option<&[u8]>) -> ClResult<Object> {
        let context = self.objects.context(create.context)?;
        if create.flags & HOST_POINTER_FLAGS != 0 {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let buffer = match create.shape.map_or(0, |shape| shape.buffer) {
            0 => None,
            id => Some(self.objects.buffer(id)?),
        };
        if buffer.as_ref().is_some_and(|buffer| !Arc::ptr_eq(&buffer.context, &context)) {
            return Err(ClError(opencl_sys::CL_INVALID_CONTEXT));
        }
        let one = self.account.charge(Resource::Buffers, 1)?;
        let bytes = if buffer.is_some() { 0 } else { Image::bytes(create)? };
        let memory = self.account.charge(Resource::Memory, bytes)?;
        let image = Image::new(context, create.flags & DEVICE_FLAGS, create, buffer, initial)?;
        let image = image.charged([one, memory]);
        Ok(Object::Image(Arc::new(image)))
    }

    fn image_formats(&self, get: &v1::GetImageFormats) -> Answered {
        let context = self.objects.context(get.context);
        match context.and_then(|context| image_formats(&context.vendor, get.flags, get.r#type)) {
            Ok(formats) => {
                let format = |it: Format| v1::ImageFormat { order: it.order, r#type: it.channel_type };
                let formats = formats.into_iter().map(format).collect();
                (Ok(()), Some(Answer::ImageFormats(v1::ImageFormats { formats })))
            }
            Err(error) => (Err(error), None),
        }
    }

    fn binaries(&mut self, program: u64) -> Answered {
        let binaries = self.objects.program(program).and_then(|program| program.vendor()?.binaries());
        match binaries {
            Ok(binaries) => {
                let binaries = binaries.into_iter().map(|bytes| self.outgoing.data(bytes.into())).collect();
                (Ok(()), Some(Answer::ProgramBinaries(v1::ProgramBinaries { binaries })))
            }
            Err(error) => (Err(error), None),
        }
    }

    fn create_kernel(&mut self, id: u64, create: &v1::CreateKernel) -> Result<Answered, CallError> {
        let program = self.objects.program(create.program);
        let made = program.and_then(|program| {
            let kernel = program.kernel(&create.name)?;
            Ok((program, kernel))
        });
        match made {
            Ok((program, kernel)) => {
                // Nobody reads a reply to call 0.
                let info = (id != 0).then(|| program.describe(&kernel));
                let kernel = Object::Kernel(Arc::new(Mutex::new(Kernel::new(program, kernel))));
                self.objects.add(create.kernel, kernel)?;
                Ok((Ok(()), info.map(Answer::Kernel)))
            }
            Err(error) => self.keep(create.kernel, Err(error)),
        }
    }
}

impl Build {
    /// Builds, on the calling thread.
    #[must_use]
    pub fn run(self) -> v1::Reply {
        let becomes = match &self.step {
            Step::Build(devices) => self.program.bitstreams_of_build(devices, &self.options),
            Step::Link(_) => self.program.bitstreams_of_build(&self.program.devices, &self.options),
            Step::Compile(..) => Vec::new(),
        };
        let (status, result) = match &self.step {
            step if let Err(refusal) = self.asker.ask_and_wait(&becomes) => {
                self.program.refused(step.failure(), &refusal)
            }
            Step::Build(devices) => self.program.build(devices, &self.options),
            Step::Compile(devices, headers) => self.program.compile(devices, &self.options, headers),
            Step::Link(programs) => self.program.link(&self.options, programs),
        };
        v1::Reply { id: self.id, status, result: Some(Answer::Build(result)) }
    }
}

/// The context's device of that id.
fn of_context(context: &Context, id: u64) -> ClResult<Device> {
    let device = context.devices.iter().find(|device| device.id == id);
    device.copied().ok_or(ClError(CL_INVALID_DEVICE))
}

/// A reply of this outcome.
#[must_use]
pub fn reply(id: u64, status: ClResult<()>, result: Option<Answer>) -> v1::Reply {
    let status = status.map_or_else(|error| error.0, |()| opencl_sys::CL_SUCCESS);
    v1::Reply { id, status, result }
}
