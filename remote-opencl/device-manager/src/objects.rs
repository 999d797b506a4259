//! What the ids of one session name: contexts, queues, buffers, programs, kernels, and objects that failed.
//!
//! An object is shared by the registry and by the commands that still need it, so releasing an id never pulls
//! something from under a command. A failed object answers every use with its own error.

use crate::arguments::Kernel;
use crate::clock;
use crate::images::{Image, Sampler};
use crate::inventory::Device;
use crate::pipes::{DeviceQueue, Pipe};
use crate::programs::Program;
use crate::quotas::Charge;
use crate::ready::QueueOrder;
use crate::segments::Slice;
use crate::sub_devices::SubDevice;
use crate::vendor::{self, ClError, ClResult, Event, Memory, Profile};
use opencl_sys::{
    CL_INVALID_COMMAND_QUEUE, CL_INVALID_CONTEXT, CL_INVALID_DEVICE, CL_INVALID_DEVICE_QUEUE,
    CL_INVALID_KERNEL, CL_INVALID_MEM_OBJECT, CL_INVALID_PROGRAM, CL_INVALID_SAMPLER,
    CL_MEM_OBJECT_ALLOCATION_FAILURE,
};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Most objects of one session.
pub const MAX_OBJECTS: usize = 1 << 16;

/// Largest difference of the clocks that is taken for the time a call took, in ns.
const MAX_CLOCK_DRIFT: i64 = 1_000_000;

/// A context.
#[derive(Debug)]
pub struct Context {
    /// The vendor's.
    pub vendor: vendor::Context,
    /// In the order of the call.
    pub devices: Vec<Device>,
    /// Those of them that are parts of others.
    _sub_devices: Vec<Arc<SubDevice>>,
    /// For zeroing buffers; made at its first use.
    housekeeping: Mutex<Option<Arc<vendor::Queue>>>,
}

/// A command queue.
#[derive(Debug)]
pub struct Queue {
    /// The vendor's.
    pub vendor: vendor::Queue,
    /// Whether it keeps its commands' order.
    pub order: QueueOrder,
    /// Its context.
    pub context: Arc<Context>,
    /// Its device.
    pub device: Device,
    /// Whether the client may ask when its commands ran.
    pub times: Times,
    /// Whether its kernels may run in the thread that waits for them.
    pub waiting: Waiting,
    /// What to add to the vendor's clock to get ours.
    offset: Mutex<Option<i64>>,
}

/// Whether a client may ask when the commands of a queue ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Times {
    /// It may.
    Shown,
    /// They are measured, but not for the client.
    Hidden,
}

/// What a thread does for a device that waits for it in the vendor's runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waiting {
    /// It may run kernels: the device is made of processors.
    Helps,
    /// It waits.
    Waits,
}

/// A buffer, or a region of one.
#[derive(Debug)]
pub struct Buffer {
    /// The vendor's.
    pub vendor: Memory,
    /// In bytes.
    pub size: usize,
    /// Its context.
    pub context: Arc<Context>,
    /// The buffer that it is a region of.
    pub parent: Option<Arc<Buffer>>,
    contents: Mutex<Contents>,
    /// On its tenant's account: the buffer and its memory.
    _charges: [Option<Charge>; 2],
}

/// What a buffer holds, where it may be another tenant's bytes.
#[derive(Debug)]
enum Contents {
    /// Whatever was there.
    Stale,
    /// The session's once this has completed.
    Becoming(Arc<Event>),
    /// The session's.
    Own,
}

/// What an id names.
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
    /// A queue on the device.
    DeviceQueue(Arc<DeviceQueue>),
    /// A part of a device.
    SubDevice(Arc<SubDevice>),
    /// A program.
    Program(Arc<Program>),
    /// A kernel.
    Kernel(Arc<Mutex<Kernel>>),
    /// Its creation failed with this code.
    Failed(i32),
}

/// The objects of a session.
#[derive(Debug, Default)]
pub struct Objects {
    by_id: HashMap<u64, Object>,
}

/// Why an object can't be added: the client breaks the protocol, or its limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// 0 names nothing.
    #[error("object id 0 is none")]
    Zero,
    /// The id is in use.
    #[error("object {0} is used twice")]
    UsedTwice(u64),
    /// There are [`MAX_OBJECTS`].
    #[error("a session may have {MAX_OBJECTS} objects; release some")]
    TooMany,
}

/// Moments of a command on the manager's clock, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moments {
    /// Enqueued.
    pub queued: u64,
    /// Given to the device.
    pub submitted: u64,
    /// Started.
    pub started: u64,
    /// Ended.
    pub ended: u64,
}

macro_rules! getter {
    ($name:ident, $variant:ident, $kind:ty, $code:ident) => {
        #[doc = concat!("The object of that id; its error if it failed, `", stringify!($code), "` if it is none.")]
        ///
        /// # Errors
        /// As said.
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

    /// Adds what was made, or the error that it gave.
    ///
    /// # Errors
    /// [`AddError`]; the session can't go on then.
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

    /// What an id that was added is after all.
    pub fn settle(&mut self, id: u64, object: Object) {
        if let Some(place) = self.by_id.get_mut(&id) {
            *place = object;
        }
    }

    /// The id names nothing from now on.
    pub fn release(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }
}

impl Context {
    /// A context over these devices; `sub_devices` are those of them that are.
    ///
    /// # Errors
    /// The vendor's.
    pub fn new(devices: Vec<Device>, sub_devices: Vec<Arc<SubDevice>>) -> ClResult<Self> {
        let vendor: Vec<_> = devices.iter().map(|device| device.vendor).collect();
        let vendor = vendor::Context::new(&vendor)?;
        Ok(Self { vendor, devices, _sub_devices: sub_devices, housekeeping: Mutex::new(None) })
    }

    fn housekeeping(&self) -> ClResult<Arc<vendor::Queue>> {
        let mut queue = lock(&self.housekeeping);
        if let Some(queue) = &*queue {
            return Ok(queue.clone());
        }
        let device = self.devices.first().ok_or(ClError(CL_INVALID_CONTEXT))?;
        let made = Arc::new(vendor::Queue::new(&self.vendor, device.vendor, 0)?);
        *queue = Some(made.clone());
        Ok(made)
    }
}

impl Queue {
    /// A queue for a device of the context.
    ///
    /// # Errors
    /// The vendor's.
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

    /// The vendor's moments on our clock: durations stay exact, and one offset serves all commands of the queue.
    #[must_use]
    pub fn moments(&self, enqueued_at: u64, profile: Profile) -> Moments {
        let measured = enqueued_at.wrapping_sub(profile.queued).cast_signed();
        let mut offset = lock(&self.offset);
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
    /// A buffer of the context.
    ///
    /// # Errors
    /// The vendor's.
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

    /// A buffer of the context that lies in shared memory and holds what is there.
    ///
    /// # Errors
    /// The vendor's.
    pub fn in_segment(context: Arc<Context>, flags: u64, slice: Slice) -> ClResult<Self> {
        let size = slice.len();
        let vendor = Memory::in_segment(&context.vendor, flags, slice)?;
        // A segment is one session's: zeroes, or bytes of its own.
        let contents = Mutex::new(Contents::Own);
        Ok(Self { vendor, size, context, parent: None, contents, _charges: [None, None] })
    }

    /// A buffer of the context that holds these bytes.
    ///
    /// # Errors
    /// The vendor's.
    pub fn with_contents(context: Arc<Context>, flags: u64, bytes: &[u8]) -> ClResult<Self> {
        let vendor = Memory::with_contents(&context.vendor, flags, bytes)?;
        let contents = Mutex::new(Contents::Own);
        Ok(Self { vendor, size: bytes.len(), context, parent: None, contents, _charges: [None, None] })
    }

    /// A region of `parent`.
    ///
    /// # Errors
    /// The vendor's; -38 where the parent is a region itself.
    pub fn sub(parent: &Arc<Self>, flags: u64, origin: usize, size: usize) -> ClResult<Self> {
        if parent.parent.is_some() {
            return Err(ClError(CL_INVALID_MEM_OBJECT));
        }
        let vendor = parent.vendor.sub(flags, origin, size)?;
        let contents = Mutex::new(Contents::Own);
        let (context, parent) = (parent.context.clone(), Some(parent.clone()));
        Ok(Self { vendor, size, context, parent, contents, _charges: [None, None] })
    }

    /// With the charges for it, which it keeps.
    #[must_use]
    pub fn charged(self, charges: [Option<Charge>; 2]) -> Self {
        Self { _charges: charges, ..self }
    }

    /// What a command that uses the buffer has to wait for, so that it finds nobody else's bytes: nothing in most
    /// cases, else the event that makes the contents the session's own, here a fill with zeros.
    ///
    /// # Errors
    /// -4 where the fill can't be enqueued.
    pub fn own_contents(&self) -> ClResult<Option<Arc<Event>>> {
        let whole = self.whole();
        let mut contents = lock(&whole.contents);
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
        let event = whole.zero().map_err(|_| ClError(CL_MEM_OBJECT_ALLOCATION_FAILURE))?;
        *contents = Contents::Becoming(event.clone());
        Ok(Some(event))
    }

    /// Whether a command that writes these bytes needs no [`Self::own_contents`] before: it writes all there is, and
    /// nothing has used the buffer yet.
    #[must_use]
    pub fn is_first_and_whole(&self, offset: usize, size: usize) -> bool {
        self.parent.is_none()
            && offset == 0
            && size == self.size
            && matches!(*lock(&self.contents), Contents::Stale)
    }

    /// The command of which [`Self::is_first_and_whole`] was true has been enqueued.
    pub fn owned_by(&self, event: &Arc<Event>) {
        *lock(&self.contents) = Contents::Becoming(event.clone());
    }

    fn whole(&self) -> &Self {
        self.parent.as_deref().unwrap_or(self)
    }

    fn zero(&self) -> ClResult<Arc<Event>> {
        const ZEROS: [u8; 128] = [0; 128];
        // Runtimes fill faster with long patterns; one has to divide the size.
        let pattern = 1 << self.size.trailing_zeros().min(ZEROS.len().trailing_zeros());
        let queue = self.context.housekeeping()?;
        let fill = queue.fill(&self.vendor, &ZEROS[..pattern], 0, self.size, &[])?;
        queue.flush()?;
        Ok(fill.event().clone())
    }
}

/// Locks; a panic elsewhere does not make the data worse.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Moments {
    /// Of a command that never reached the device: all now.
    #[must_use]
    pub fn now() -> Self {
        let now = clock::now_ns();
        Self { queued: now, submitted: now, started: now, ended: now }
    }
}
