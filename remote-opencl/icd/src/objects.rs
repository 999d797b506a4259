//! What lies behind each type of handle: the client's object, and what only C asks for.

use crate::handle::{Handle, Object, cl_object};
use crate::platforms::Device;
use fpga_client as client;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A context.
pub struct Context {
    pub client: Arc<client::Context>,
    pub devices: Vec<Handle<Device>>,
    /// As given, with the terminating zero; empty for NULL.
    pub properties: Vec<isize>,
    pub callbacks: Mutex<Vec<Destructor>>,
    /// Of each device, the queue on it that kernels get without naming one.
    pub default_queues: Mutex<Vec<DefaultQueue>>,
}

/// A device by its handle, and a queue on it, which the context's own list must not keep.
pub type DefaultQueue = (usize, Weak<Object<DeviceQueue>>);

/// A command queue.
pub struct Queue {
    pub client: Arc<client::Queue>,
    pub context: Handle<Context>,
    pub device: Handle<Device>,
    /// As given to clCreateCommandQueueWithProperties, with the terminating zero; empty for the 1.x call and NULL.
    pub properties: Vec<u64>,
}

/// A queue on the device, to which no host command goes: a handle of its own kind, so that all of them refuse it.
pub struct DeviceQueue {
    pub client: Arc<client::DeviceQueue>,
    pub context: Handle<Context>,
    pub device: Handle<Device>,
    /// In bytes.
    pub size: u32,
    /// As [`Queue::properties`].
    pub properties: Vec<u64>,
}

/// A buffer, sub-buffer, image or pipe.
pub struct Memory {
    /// Empty only while it is being destroyed.
    client: Option<MemObject>,
    pub context: Handle<Context>,
    /// The buffer of a sub-buffer, or of an image that lies in one.
    pub parent: Option<Handle<Memory>>,
    pub callbacks: Mutex<Vec<Destructor>>,
    /// It was made with an empty list of properties rather than with none.
    empty_properties: AtomicBool,
}

/// What a memory object is.
pub enum MemObject {
    Buffer(Arc<client::Buffer>),
    Image(Arc<client::Image>),
    Pipe(Arc<client::Pipe>),
}

/// A sampler.
pub struct Sampler {
    pub client: Arc<client::Sampler>,
    pub context: Handle<Context>,
    pub normalized: bool,
    pub addressing: u32,
    pub filter: u32,
    /// As given to clCreateSamplerWithProperties, with the terminating zero; empty for the 1.x call and NULL.
    pub properties: Vec<u64>,
}

/// A program.
pub struct Program {
    pub client: Arc<client::Program>,
    pub context: Handle<Context>,
    pub devices: Vec<Handle<Device>>,
    /// A build with a callback is under way.
    pub building: AtomicBool,
    /// Kernel objects made of it: while there are any it can't be rebuilt.
    pub kernels: AtomicUsize,
}

/// A kernel.
pub struct Kernel {
    pub client: Arc<client::Kernel>,
    pub program: Handle<Program>,
}

/// An event.
pub struct Event {
    pub client: Arc<client::Event>,
    pub context: Handle<Context>,
    /// None for user events.
    pub queue: Option<Handle<Queue>>,
    pub command_type: u32,
}

cl_object!(Context, CL_INVALID_CONTEXT, destroyed: |context, handle| {
    run_in_reverse(&mut context.callbacks, handle);
});
cl_object!(Queue, CL_INVALID_COMMAND_QUEUE);
cl_object!(DeviceQueue, CL_INVALID_COMMAND_QUEUE);
cl_object!(Memory, CL_INVALID_MEM_OBJECT, destroyed: Memory::destroyed);
cl_object!(Sampler, CL_INVALID_SAMPLER);
cl_object!(Program, CL_INVALID_PROGRAM);
cl_object!(Kernel, CL_INVALID_KERNEL, destroyed: |kernel, _| {
    kernel.program.kernels.fetch_sub(1, Ordering::Relaxed);
});
cl_object!(Event, CL_INVALID_EVENT);

/// A callback for the end of an object, with its `user_data`.
pub struct Destructor {
    pub function: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub user_data: UserData,
}

/// A pointer of the application that is only ever handed back to it.
#[derive(Clone, Copy)]
pub struct UserData(pub *mut c_void);

// SAFETY: never dereferenced here; what a callback on another thread does with it is the application's contract.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

impl Destructor {
    fn run(&self, handle: *mut c_void) {
        // SAFETY: the application gave this function for this purpose.
        unsafe { (self.function)(handle, self.user_data.0) };
    }
}

fn run_in_reverse(callbacks: &mut Mutex<Vec<Destructor>>, handle: *mut c_void) {
    let callbacks = std::mem::take(callbacks.get_mut().unwrap_or_else(PoisonError::into_inner));
    for callback in callbacks.iter().rev() {
        callback.run(handle);
    }
}

impl Memory {
    /// The handle of a new buffer, or of a region of `parent`.
    pub fn new(
        client: Arc<client::Buffer>,
        context: Handle<Context>,
        parent: Option<Handle<Self>>,
    ) -> Handle<Self> {
        Self::of(MemObject::Buffer(client), context, parent)
    }

    /// The handle of a new object, which may lie in `parent`.
    pub fn of(client: MemObject, context: Handle<Context>, parent: Option<Handle<Self>>) -> Handle<Self> {
        let callbacks = Mutex::new(Vec::new());
        let empty_properties = AtomicBool::new(false);
        Object::new(Self { client: Some(client), context, parent, callbacks, empty_properties })
    }

    /// What it is.
    pub fn object(&self) -> Result<&MemObject, client::ClError> {
        self.client.as_ref().ok_or(client::ClError::INVALID_MEM_OBJECT)
    }

    /// The client's buffer.
    pub fn buffer(&self) -> Result<&Arc<client::Buffer>, client::ClError> {
        match self.object()? {
            MemObject::Buffer(buffer) => Ok(buffer),
            MemObject::Image(_) | MemObject::Pipe(_) => Err(client::ClError::INVALID_MEM_OBJECT),
        }
    }

    /// The client's image.
    pub fn image(&self) -> Result<&Arc<client::Image>, client::ClError> {
        match self.object()? {
            MemObject::Image(image) => Ok(image),
            MemObject::Buffer(_) | MemObject::Pipe(_) => Err(client::ClError::INVALID_MEM_OBJECT),
        }
    }

    /// Its list of properties was there, and empty.
    pub fn note_empty_properties(&self) {
        self.empty_properties.store(true, Ordering::Relaxed);
    }

    /// `CL_MEM_PROPERTIES`.
    pub fn properties(&self) -> &'static [u64] {
        if self.empty_properties.load(Ordering::Relaxed) { &[0] } else { &[] }
    }

    /// The callbacks come after the buffer's real end, which commands still under way put off.
    fn destroyed(&mut self, handle: *mut c_void) {
        let Some(object) = self.client.take() else { return };
        let callbacks = std::mem::take(self.callbacks.get_mut().unwrap_or_else(PoisonError::into_inner));
        if callbacks.is_empty() {
            return;
        }
        let handle = UserData(handle);
        let run = move || {
            let UserData(handle) = { handle };
            callbacks.iter().rev().for_each(|callback| callback.run(handle));
        };
        // A command may let go between the two: the callbacks then run on the callback thread, at once.
        match object {
            MemObject::Buffer(buffer) if Arc::strong_count(&buffer) > 1 => buffer.on_destroyed(run),
            MemObject::Image(image) if Arc::strong_count(&image) > 1 => image.on_destroyed(run),
            unused => {
                drop(unused);
                run();
            }
        }
    }
}

impl Kernel {
    /// The handle of a new kernel of `program`.
    pub fn new(client: Arc<client::Kernel>, program: &Handle<Program>) -> Handle<Self> {
        program.kernels.fetch_add(1, Ordering::Relaxed);
        Object::new(Self { client, program: Arc::clone(program) })
    }
}
