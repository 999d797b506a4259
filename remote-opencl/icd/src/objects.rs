//! The objects behind handles: an object of the client, and values that only the C API returns.

use crate::handle::{Handle, Object, cl_object};
use crate::platforms::Device;
use fpga_client as client;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

pub struct Context {
    pub client: Arc<client::Context>,
    pub devices: Vec<Handle<Device>>,
    /// The list as given, with the terminating zero; empty for NULL.
    pub properties: Vec<isize>,
    pub callbacks: Mutex<Vec<Destructor>>,
    /// For each device, the queue on the device that kernels use by default.
    pub default_queues: Mutex<Vec<DefaultQueue>>,
}

/// The address of a device's handle and its default queue. The reference is weak, so that the context doesn't keep
/// the queue alive.
pub type DefaultQueue = (usize, Weak<Object<DeviceQueue>>);

pub struct Queue {
    pub client: Arc<client::Queue>,
    pub context: Handle<Context>,
    pub device: Handle<Device>,
    /// The list given to clCreateCommandQueueWithProperties, with the terminating zero; empty for the 1.x call and
    /// NULL.
    pub properties: Vec<u64>,
}

/// A queue on the device. Its own type makes every host command refuse its handle.
pub struct DeviceQueue {
    pub client: Arc<client::DeviceQueue>,
    pub context: Handle<Context>,
    pub device: Handle<Device>,
    /// Size in bytes.
    pub size: u32,
    /// The list given, like [`Queue::properties`].
    pub properties: Vec<u64>,
}

/// A buffer, sub-buffer, image or pipe.
pub struct Memory {
    /// `None` only while the object is being destroyed.
    client: Option<MemObject>,
    pub context: Handle<Context>,
    /// The parent of a sub-buffer, or the buffer in which an image lies.
    pub parent: Option<Handle<Memory>>,
    pub callbacks: Mutex<Vec<Destructor>>,
    /// Whether the object was created with an empty list of properties rather than NULL.
    empty_properties: AtomicBool,
}

/// The client's object of a memory object.
pub enum MemObject {
    Buffer(Arc<client::Buffer>),
    Image(Arc<client::Image>),
    Pipe(Arc<client::Pipe>),
}

pub struct Sampler {
    pub client: Arc<client::Sampler>,
    pub context: Handle<Context>,
    pub normalized: bool,
    pub addressing: u32,
    pub filter: u32,
    /// The list given to clCreateSamplerWithProperties, with the terminating zero; empty for the 1.x call and NULL.
    pub properties: Vec<u64>,
}

pub struct Program {
    pub client: Arc<client::Program>,
    pub context: Handle<Context>,
    pub devices: Vec<Handle<Device>>,
    /// Whether a build is running.
    pub building: AtomicBool,
    /// Number of the program's kernel objects; while there are any, it can't be rebuilt.
    pub kernels: AtomicUsize,
}

pub struct Kernel {
    pub client: Arc<client::Kernel>,
    pub program: Handle<Program>,
}

pub struct Event {
    pub client: Arc<client::Event>,
    pub context: Handle<Context>,
    /// `None` for user events.
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

/// A callback for the destruction of an object, with its `user_data`.
pub struct Destructor {
    pub function: unsafe extern "C" fn(*mut c_void, *mut c_void),
    pub user_data: UserData,
}

/// A pointer of the application that is only passed back to the application.
#[derive(Clone, Copy)]
pub struct UserData(pub *mut c_void);

// SAFETY: the pointer is never dereferenced here; the application is responsible for its use in callbacks on other
// threads.
unsafe impl Send for UserData {}
// SAFETY: as above.
unsafe impl Sync for UserData {}

impl Destructor {
    fn run(&self, handle: *mut c_void) {
        // SAFETY: the application passed this function to be called with these arguments.
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
    /// The handle of a new buffer, or of a new sub-buffer of `parent`.
    pub fn new(
        client: Arc<client::Buffer>,
        context: Handle<Context>,
        parent: Option<Handle<Self>>,
    ) -> Handle<Self> {
        Self::of(MemObject::Buffer(client), context, parent)
    }

    /// The handle of a new object, which may lie in the buffer `parent`.
    pub fn of(client: MemObject, context: Handle<Context>, parent: Option<Handle<Self>>) -> Handle<Self> {
        let callbacks = Mutex::new(Vec::new());
        let empty_properties = AtomicBool::new(false);
        Object::new(Self { client: Some(client), context, parent, callbacks, empty_properties })
    }

    /// The client's object.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT` if the object is being destroyed.
    pub fn object(&self) -> Result<&MemObject, client::ClError> {
        self.client.as_ref().ok_or(client::ClError::INVALID_MEM_OBJECT)
    }

    /// The client's buffer.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT` for other objects.
    pub fn buffer(&self) -> Result<&Arc<client::Buffer>, client::ClError> {
        match self.object()? {
            MemObject::Buffer(buffer) => Ok(buffer),
            MemObject::Image(_) | MemObject::Pipe(_) => Err(client::ClError::INVALID_MEM_OBJECT),
        }
    }

    /// The client's image.
    ///
    /// # Errors
    /// `CL_INVALID_MEM_OBJECT` for other objects.
    pub fn image(&self) -> Result<&Arc<client::Image>, client::ClError> {
        match self.object()? {
            MemObject::Image(image) => Ok(image),
            MemObject::Buffer(_) | MemObject::Pipe(_) => Err(client::ClError::INVALID_MEM_OBJECT),
        }
    }

    /// Notes that the object was created with an empty list of properties.
    pub fn note_empty_properties(&self) {
        self.empty_properties.store(true, Ordering::Relaxed);
    }

    /// `CL_MEM_PROPERTIES`.
    pub fn properties(&self) -> &'static [u64] {
        if self.empty_properties.load(Ordering::Relaxed) { &[0] } else { &[] }
    }

    /// Runs the destructor callbacks after the client's object is destroyed, which commands that use it delay.
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
        // A command may end between the check and the registration. The callbacks then run on the callback thread
        // at once.
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
