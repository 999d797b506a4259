//! What lies behind each type of handle: the client's object, and what only C asks for.

use crate::handle::{Handle, Object, cl_object};
use crate::platforms::Device;
use fpga_client as client;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A context.
pub struct Context {
    pub client: Arc<client::Context>,
    pub devices: Vec<Handle<Device>>,
    /// As given, with the terminating zero; empty for NULL.
    pub properties: Vec<isize>,
    pub callbacks: Mutex<Vec<Destructor>>,
}

/// A command queue.
pub struct Queue {
    pub client: Arc<client::Queue>,
    pub context: Handle<Context>,
    pub device: Handle<Device>,
    /// As given to clCreateCommandQueueWithProperties, with the terminating zero; empty for the 1.x call and NULL.
    pub properties: Vec<u64>,
}

/// A buffer or sub-buffer.
pub struct Memory {
    /// Empty only while it is being destroyed.
    client: Option<Arc<client::Buffer>>,
    pub context: Handle<Context>,
    pub parent: Option<Handle<Memory>>,
    pub callbacks: Mutex<Vec<Destructor>>,
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
cl_object!(Memory, CL_INVALID_MEM_OBJECT, destroyed: Memory::destroyed);
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
        Object::new(Self { client: Some(client), context, parent, callbacks: Mutex::new(Vec::new()) })
    }

    /// The client's buffer.
    pub fn buffer(&self) -> Result<&Arc<client::Buffer>, client::ClError> {
        self.client.as_ref().ok_or(client::ClError::INVALID_MEM_OBJECT)
    }

    /// The callbacks come after the buffer's real end, which commands still under way put off.
    fn destroyed(&mut self, handle: *mut c_void) {
        let Some(buffer) = self.client.take() else { return };
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
        if Arc::strong_count(&buffer) == 1 {
            drop(buffer);
            run();
        } else {
            buffer.on_destroyed(run);
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
