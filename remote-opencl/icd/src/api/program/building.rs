//! Builds, compilations and links, in the calling thread or in the background.

use crate::cl;
use crate::handle::{Handle, lookup};
use crate::memory;
use crate::objects::{Program, UserData};
use fpga_client as client;
use fpga_client::{ClError, ThreadTrace};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The application's callback for the end of a build.
pub type ProgramNotify = unsafe extern "C" fn(cl::cl_program, *mut c_void);

/// The headers of a compilation, with their names.
pub(super) type Headers = Vec<(String, Arc<client::Program>)>;

/// # Safety
/// Both lists are NULL or have `count` entries; each name is NULL or ends with NUL.
pub(super) unsafe fn read_headers(
    count: cl::cl_uint,
    headers: *const cl::cl_program,
    names: *mut *const c_char,
) -> Result<Headers, ClError> {
    // SAFETY: the lists have `count` entries by this function's contract.
    let (headers, names) = unsafe {
        (memory::array(headers, count as usize)?, memory::array(names.cast_const(), count as usize)?)
    };
    let mut read = Vec::with_capacity(headers.len());
    for (header, name) in headers.iter().zip(names) {
        let program = lookup::<Program>(*header)?;
        if name.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the name is not NULL, and ends with NUL by this function's contract.
        read.push((unsafe { text_of(*name, cl::CL_INVALID_VALUE)? }, Arc::clone(&program.client)));
    }
    Ok(read)
}

/// Links, in the calling thread or in the background. Returns the code for a call that returns the program, or the
/// error for one that returns none.
pub(super) fn link(
    made: *mut c_void,
    options: String,
    inputs: Vec<Arc<client::Program>>,
    notify: Option<ProgramNotify>,
    user_data: UserData,
) -> Result<cl::cl_int, ClError> {
    let program = lookup::<Program>(made)?;
    match notify {
        None => match program.client.link(&options, &inputs) {
            (Ok(()), _) => Ok(cl::CL_SUCCESS),
            (Err(error), true) => Ok(error.0),
            (Err(error), false) => Err(error),
        },
        notify => {
            let build = Build { program, options, step: Step::Link(inputs) };
            build.start(notify, user_data).map(|()| cl::CL_SUCCESS)
        }
    }
}

/// A build, compilation or link to run.
pub(super) struct Build {
    pub(super) program: Handle<Program>,
    pub(super) options: String,
    pub(super) step: Step,
}

/// The kind of a build.
pub(super) enum Step {
    Build(Vec<Arc<client::Device>>),
    Compile(Vec<Arc<client::Device>>, Headers),
    Link(Vec<Arc<client::Program>>),
}

impl Build {
    /// Starts the build, unless the standard forbids it now. Without `notify` the build has ended when this returns.
    pub(super) fn start(self, notify: Option<ProgramNotify>, user_data: UserData) -> Result<(), ClError> {
        let program = &self.program;
        // CL_INVALID_OPERATION if there are kernel objects attached to program, or an earlier build has not
        // completed.
        if program.kernels.load(Ordering::Relaxed) > 0 || program.building.swap(true, Ordering::AcqRel) {
            return Err(ClError(cl::CL_INVALID_OPERATION));
        }
        match notify {
            None => self.run(),
            Some(notify) => self.run_in_background(notify, user_data),
        }
    }

    fn run(self) -> Result<(), ClError> {
        let client = &self.program.client;
        let result = match &self.step {
            Step::Build(devices) => client.build(devices, &self.options),
            Step::Compile(devices, headers) => client.compile(devices, &self.options, headers),
            Step::Link(inputs) => client.link(&self.options, inputs).0,
        };
        self.program.building.store(false, Ordering::Release);
        result
    }

    /// Builds on a new thread and then calls `notify`. The callback thread can't do it, since it must stay free for
    /// events.
    fn run_in_background(self, notify: ProgramNotify, user_data: UserData) -> Result<(), ClError> {
        let program = Arc::clone(&self.program);
        let trace = ThreadTrace::of_this_thread();
        let task = move || {
            trace.take_over();
            let UserData(user_data) = { user_data };
            let handle = Arc::clone(&self.program);
            // The callback finds the outcome in the build status and log.
            let _ = self.run();
            // SAFETY: the application passed this function to be called with these arguments.
            unsafe { notify(handle.as_ptr(), user_data) };
        };
        spawn_without_signals(task).map_err(|_| {
            program.building.store(false, Ordering::Release);
            ClError(cl::CL_OUT_OF_HOST_MEMORY)
        })
    }
}

/// Starts a thread that has all signals blocked.
fn spawn_without_signals(task: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: both sets are initialised before they are read; only this thread's mask changes, and it is restored.
    unsafe {
        let mut all = std::mem::zeroed();
        let mut before = std::mem::zeroed();
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let spawned = std::thread::Builder::new().name("fpga-opencl-build".into()).spawn(task);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        spawned.map(drop)
    }
}

/// A string of the application, empty for NULL; `invalid` is the error for a string that is not UTF-8.
///
/// # Safety
/// `text` is NULL or ends with NUL.
pub(super) unsafe fn text_of(text: *const c_char, invalid: cl::cl_int) -> Result<String, ClError> {
    // SAFETY: `text` is NULL or ends with NUL by this function's contract.
    match unsafe { memory::text(text) } {
        None => Ok(String::new()),
        Some(text) => Ok(text.to_str().map_err(|_| ClError(invalid))?.to_owned()),
    }
}
