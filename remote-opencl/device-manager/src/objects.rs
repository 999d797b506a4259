//! The objects of one session by their ids: contexts, queues, buffers, programs, kernels, and objects whose
//! creation failed.
//!
//! An object is shared by the registry and by the commands that still need it, so an id may be released while
//! commands use the object. Every use of a failed object returns the error of its creation.

use crate::arguments::Kernel;
use crate::clock;
use crate::images::{Image, Sampler};
use crate::inventory::Device;
use crate::pipes::{DeviceQueue, Pipe};
use crate::programs::Program;
use crate::quotas::Charge;
use crate::ready::QueueOrder;
use crate::sub_devices::SubDevice;
use fpga_vendor::SharedBytes;
use fpga_vendor::{self as vendor, ClError, ClResult, Event, Memory, Profile};
use opencl_sys::{
    CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT, CL_INVALID_DEVICE, CL_INVALID_DEVICE_QUEUE,
    CL_INVALID_KERNEL, CL_INVALID_MEM_OBJECT, CL_INVALID_PROGRAM, CL_INVALID_SAMPLER,
};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of objects of one session.
pub const MAX_OBJECTS: usize = 1 << 16;

/// Maximum change, in nanoseconds, of a measured difference of the clocks that is taken for the duration of a call.
const MAX_CLOCK_DRIFT: i64 = 1_000_000;

/// A context.
#[derive(Debug)]
pub struct Context {
    /// The vendor's context.
    pub vendor: vendor::Context,
    /// The devices, in the order of the call that made the context.
    pub devices: Vec<Device>,
    /// The sub-devices among the devices, which the context keeps alive.
    _sub_devices: Vec<Arc<SubDevice>>,
    /// A queue that fills buffers with zeros, made at its first use.
    housekeeping: Mutex<Option<Arc<vendor::Queue>>>,
}

/// A command queue.
#[derive(Debug)]
pub struct Queue {
    /// The vendor's queue.
    pub vendor: vendor::Queue,
    /// Whether the queue executes its commands in order.
    pub order: QueueOrder,
    /// The queue's context.
    pub context: Arc<Context>,
    /// The queue's device.
    pub device: Device,
    /// Whether the client may read the times of its commands.
    pub times: Times,
    /// Whether the device runs kernels in a thread that waits for them.
    pub waiting: Waiting,
    /// Offset from the vendor's clock to the manager's, in nanoseconds.
    offset: Mutex<Option<i64>>,
}

/// Whether a client may read when the commands of a queue ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// The client may read the times.
    Shown,
    /// The times are measured, but the client can't read them.
    Hidden,
}

/// How a device uses a thread that waits in the vendor's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// The device is made of processors and may run kernels in the thread.
    Helps,
    /// The thread only waits.
    Waits,
}

/// A buffer, or a region of one.
#[derive(Debug)]
pub struct Buffer {
    /// The vendor's buffer.
    pub vendor: Memory,
    /// Size in bytes.
    pub size: usize,
    /// The buffer's context.
    pub context: Arc<Context>,
    /// The buffer that this one is a region of.
    pub parent: Option<Arc<Buffer>>,
    contents: Mutex<Contents>,
    /// The charges for the buffer and for its memory.
    _charges: [Option<Charge>; 2],
}

/// Whose bytes a buffer holds.
#[derive(Debug)]
enum Contents {
    /// The buffer may hold another tenant's bytes.
    Stale,
    /// The buffer holds the session's own bytes once this event has completed.
    Becoming(Arc<Event>),
    /// The buffer holds the session's own bytes.
    Own,
}

/// The object of an id.
#[derive(Debug, Clone)]
pub enum Object {
    /// A context.
    Context(Arc<Context>),
    /// A queue.
    Queue(Arc<Queue>),
    /// A buffer.
    Buffer(Arc<Buffer>),
    /// An image.
    Image(Arc<Image>),
    /// A sampler.
    Sampler(Arc<Sampler>),
    /// A pipe.
    Pipe(Arc<Pipe>),
    /// A queue on a device.
    DeviceQueue(Arc<DeviceQueue>),
    /// A sub-device.
    SubDevice(Arc<SubDevice>),
    /// A program.
    Program(Arc<Program>),
    /// A kernel.
    Kernel(Arc<Mutex<Kernel>>),
    /// The creation of the object failed with this code.
    Failed(i32),
}

/// The objects of a session by their ids.
#[derive(Debug, Default)]
pub struct Objects {
    by_id: HashMap<u64, Object>,
}

/// The reason why an object can't be added: the client violates the protocol or exceeds its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The id is 0.
    #[error("object id 0 is none")]
    Zero,
    /// The id is already in use.
    #[error("object {0} is used twice")]
    UsedTwice(u64),
    /// The session has [`MAX_OBJECTS`] objects.
    #[error("a session may have {MAX_OBJECTS} objects; release some")]
    TooMany,
}

/// The times of a command on the manager's clock, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    /// The client's call enqueued the command.
    pub queued: u64,
    /// The runtime gave the command to the device.
    pub submitted: u64,
    /// The command started.
    pub started: u64,
    /// The command ended.
    pub ended: u64,
}

macro_rules! getter {
    ($name:ident, $variant:ident, $kind:ty, $code:ident) => {
        #[doc = concat!("The object of that id; its error if it failed, `", stringify!($code), "` if it is none.")]
        ///
        /// # Errors
        /// The code with which the object failed, or the code above if the id names no such object.
        pub fn $name(&self, id: u64) -> ClResult<$kind> {
            match self.by_id.get(&id) {
                Some(Object::$variant(object)) => Ok(object.clone()),
                Some(Object::Failed(code)) => Err(ClError(*code)),
                _ => Err(ClError($code)),
            }
        }
    };
}

impl Objects {
    getter!(context, Context, Arc<Context>, CL_INVALID_CONTEXT);
    getter!(queue, Queue, Arc<Queue>, CL_INVALID_COMMAND_QUEUE);
    getter!(buffer, Buffer, Arc<Buffer>, CL_INVALID_MEM_OBJECT);
    getter!(image, Image, Arc<Image>, CL_INVALID_MEM_OBJECT);
    getter!(sampler, Sampler, Arc<Sampler>, CL_INVALID_SAMPLER);
    getter!(pipe, Pipe, Arc<Pipe>, CL_INVALID_MEM_OBJECT);
    getter!(device_queue, DeviceQueue, Arc<DeviceQueue>, CL_INVALID_DEVICE_QUEUE);
    getter!(sub_device, SubDevice, Arc<SubDevice>, CL_INVALID_DEVICE);
    getter!(program, Program, Arc<Program>, CL_INVALID_PROGRAM);
    getter!(kernel, Kernel, Arc<Mutex<Kernel>>, CL_INVALID_KERNEL);

    /// Adds an object, or the error of its creation.
    ///
    /// # Errors
    /// [`AddError`], if the id is not allowed or there are too many objects; the session must end then.
    pub fn add(&mut self, id: u64, object: Object) -> Result<(), AddError> {
        if id == 0 {
            return Err(AddError::Zero);
        }
        if self.by_id.len() >= MAX_OBJECTS {
            return Err(AddError::TooMany);
        }
        match self.by_id.insert(id, object) {
            None => Ok(()),
            Some(_) => Err(AddError::UsedTwice(id)),
        }
    }

    /// Replaces the object of an id, if the id is in use.
    pub fn settle(&mut self, id: u64, object: Object) {
        if let Some(place) = self.by_id.get_mut(&id) {
            *place = object;
        }
    }

    /// Removes an id.
    pub fn release(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    /// Whether the session has no objects.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

impl Context {
    /// Makes a context of `devices`. `sub_devices` are the sub-devices among them.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(devices: Vec<Device>, sub_devices: Vec<Arc<SubDevice>>) -> ClResult<Self> {
        let vendor: Vec<_> = devices.iter().map(|device| device.vendor).collect();
        let vendor = vendor::Context::new(&vendor)?;
        Ok(Self { vendor, devices, _sub_devices: sub_devices, housekeeping: Mutex::new(None) })
    }

    fn housekeeping(&self) -> ClResult<Arc<vendor::Queue>> {
        let mut queue = self.housekeeping.lock();
        if let Some(queue) = &*queue {
            return Ok(queue.clone());
        }
        let device = self.devices.first().ok_or(ClError::INVALID_CONTEXT)?;
        let made = Arc::new(vendor::Queue::new(&self.vendor, device.vendor, 0)?);
        *queue = Some(made.clone());
        Ok(made)
    }
}

impl Queue {
    /// Makes a queue for a device of the context.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(context: Arc<Context>, device: Device, properties: u64) -> ClResult<Self> {
        let vendor = vendor::Queue::new(&context.vendor, device.vendor, properties)?;
        let order = if properties & opencl_sys::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0 {
            QueueOrder::InOrder
        } else {
            QueueOrder::OutOfOrder
        };
        let profiling = properties & opencl_sys::CL_QUEUE_PROFILING_ENABLE != 0;
        let times = if profiling { Times::Shown } else { Times::Hidden };
        let waiting = if device.vendor.is_processors() { Waiting::Helps } else { Waiting::Waits };
        Ok(Self { vendor, order, context, device, times, waiting, offset: Mutex::new(None) })
    }

    /// Translates the vendor's times to the manager's clock. All commands of the queue use one offset, so durations
    /// stay exact; the offset changes only when the clocks have drifted by more than a millisecond.
    #[must_use]
    pub fn moments(&self, enqueued_at: u64, profile: Profile) -> Moments {
        let measured = enqueued_at.wrapping_sub(profile.queued).cast_signed();
        let mut offset = self.offset.lock();
        let kept = offset
            .filter(|kept| (measured.wrapping_sub(*kept)).unsigned_abs() <= MAX_CLOCK_DRIFT.unsigned_abs());
        let offset = *offset.insert(kept.unwrap_or(measured));
        let ours = |moment: u64| moment.wrapping_add_signed(offset);
        let queued = ours(profile.queued);
        let submitted = ours(profile.submitted).max(queued);
        let started = ours(profile.started).max(submitted);
        Moments { queued, submitted, started, ended: ours(profile.ended).max(started) }
    }
}

impl Buffer {
    /// Makes a buffer.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(context: Arc<Context>, flags: u64, size: usize) -> ClResult<Self> {
        let vendor = Memory::new(&context.vendor, flags, size)?;
        Ok(Self {
            vendor,
            size,
            context,
            parent: None,
            contents: Mutex::new(Contents::Stale),
            _charges: [None, None],
        })
    }

    /// Makes a buffer that lies in shared memory and holds the bytes there.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn in_segment(context: Arc<Context>, flags: u64, slice: SharedBytes) -> ClResult<Self> {
        let size = slice.len();
        let vendor = Memory::in_shared_memory(&context.vendor, flags, slice)?;
        // A segment belongs to one session: it holds zeros or bytes of that session.
        let contents = Mutex::new(Contents::Own);
        Ok(Self { vendor, size, context, parent: None, contents, _charges: [None, None] })
    }

    /// Makes a buffer that holds `bytes`.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn with_contents(context: Arc<Context>, flags: u64, bytes: &[u8]) -> ClResult<Self> {
        let vendor = Memory::with_contents(&context.vendor, flags, bytes)?;
        let contents = Mutex::new(Contents::Own);
        Ok(Self { vendor, size: bytes.len(), context, parent: None, contents, _charges: [None, None] })
    }

    /// Makes a region of `parent`.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_MEM_OBJECT` (-38) if `parent` is itself a region.
    pub fn sub(parent: &Arc<Self>, flags: u64, origin: usize, size: usize) -> ClResult<Self> {
        if parent.parent.is_some() {
            return Err(ClError::INVALID_MEM_OBJECT);
        }
        let vendor = parent.vendor.sub(flags, origin, size)?;
        let contents = Mutex::new(Contents::Own);
        let (context, parent) = (parent.context.clone(), Some(parent.clone()));
        Ok(Self { vendor, size, context, parent, contents, _charges: [None, None] })
    }

    /// Attaches the charges for the buffer, which live as long as it.
    #[must_use]
    pub fn charged(self, charges: [Option<Charge>; 2]) -> Self {
        Self { _charges: charges, ..self }
    }

    /// The event that a command which uses the buffer must wait for, so that the command can't read another
    /// tenant's bytes. In most cases there is none. Otherwise it is the event of the command that overwrites the
    /// whole buffer; if no such command is under way, this enqueues a fill with zeros.
    ///
    /// # Errors
    /// `CL_MEM_OBJECT_ALLOCATION_FAILURE` (-4) if the fill can't be enqueued.
    pub fn own_contents(&self) -> ClResult<Option<Arc<Event>>> {
        let whole = self.whole();
        let mut contents = whole.contents.lock();
        if let Contents::Becoming(event) = &*contents {
            match event.status() {
                Ok(opencl_sys::CL_COMPLETE) => *contents = Contents::Own,
                Ok(status) if status > 0 => return Ok(Some(event.clone())),
                _ => *contents = Contents::Stale,
            }
        }
        if let Contents::Own = *contents {
            return Ok(None);
        }
        let event = whole.zero().map_err(|_| ClError::MEM_OBJECT_ALLOCATION_FAILURE)?;
        *contents = Contents::Becoming(event.clone());
        Ok(Some(event))
    }

    /// Whether a command that writes these bytes may skip [`Self::own_contents`]: it writes the whole buffer, and
    /// no command has used the buffer yet.
    #[must_use]
    pub fn is_first_and_whole(&self, offset: usize, size: usize) -> bool {
        self.parent.is_none()
            && offset == 0
            && size == self.size
            && matches!(*self.contents.lock(), Contents::Stale)
    }

    /// Records that a command for which [`Self::is_first_and_whole`] was true has been enqueued.
    pub fn owned_by(&self, event: &Arc<Event>) {
        *self.contents.lock() = Contents::Becoming(event.clone());
    }

    fn whole(&self) -> &Self {
        self.parent.as_deref().unwrap_or(self)
    }

    fn zero(&self) -> ClResult<Arc<Event>> {
        const ZEROS: [u8; 128] = [0; 128];
        // Runtimes fill faster with long patterns; the pattern must divide the size.
        let pattern = 1 << self.size.trailing_zeros().min(ZEROS.len().trailing_zeros());
        let queue = self.context.housekeeping()?;
        let fill = queue.fill(&self.vendor, &ZEROS[..pattern], 0, self.size, &[])?;
        queue.flush()?;
        Ok(fill.event().clone())
    }
}

impl Moments {
    /// The times of a command that never reached the device: all are now.
    #[must_use]
    pub fn now() -> Self {
        let now = clock::now_ns();
        Self { queued: now, submitted: now, started: now, ended: now }
    }
}
