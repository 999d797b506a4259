//! Programs and their builds.

use crate::api::context::device_handles;
use crate::api::device;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, Object, lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, Program, UserData};
use crate::platforms::Device;
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::{c_char, c_uchar, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

type ProgramNotify = unsafe extern "C" fn(cl::cl_program, *mut c_void);

entry_points! {
    fn clCreateProgramWithSource(
        context: cl::cl_context,
        count: cl::cl_uint,
        strings: *mut *const c_char,
        lengths: *const usize,
    ) -> pointer {
        let context = lookup::<Context>(context)?;
        // SAFETY: the caller's lists have `count` entries.
        let source = unsafe { join(count, strings, lengths)? };
        let client = client::Program::with_source(&context.client, source)?;
        let devices = context.devices.clone();
        Ok(handle(client, context, devices))
    }

    fn clCreateProgramWithBinary(
        context: cl::cl_context,
        num_devices: cl::cl_uint,
        devices: *const cl::cl_device_id,
        lengths: *const usize,
        binaries: *mut *const c_uchar,
        binary_status: *mut cl::cl_int,
    ) -> pointer {
        let context = lookup::<Context>(context)?;
        // SAFETY: the caller's list has `num_devices` devices.
        let devices = unsafe { device::read_list(num_devices, devices)? };
        let foreign = |device| !context.devices.iter().any(|own| Arc::ptr_eq(own, device));
        if devices.iter().any(foreign) {
            return Err(ClError(cl::CL_INVALID_DEVICE));
        }
        // SAFETY: the caller's lists have `num_devices` entries.
        let given = unsafe { given_binaries(&devices, lengths, binaries, binary_status)? };
        let (result, statuses) = match client::Program::with_binaries(&context.client, &given) {
            Ok((client, statuses)) => (Ok(client), statuses),
            Err(error) => (Err(error.error), error.statuses),
        };
        if !binary_status.is_null() {
            for (index, status) in statuses.iter().take(devices.len()).enumerate() {
                // SAFETY: fewer than `num_devices`, for which the caller's list has room.
                unsafe { memory::write(binary_status.add(index), *status) };
            }
        }
        Ok(handle(result?, context, devices))
    }

    fn clCreateProgramWithIL(context: cl::cl_context, il: *const c_void, length: usize) -> pointer {
        let context = lookup::<Context>(context)?;
        // CL_INVALID_OPERATION if no devices in context support intermediate language programs.
        if !context.devices.iter().any(|device| device.takes_il()) {
            return Err(ClError(cl::CL_INVALID_OPERATION));
        }
        // CL_INVALID_VALUE if il is NULL or length is zero.
        if length == 0 {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's program has `length` bytes.
        let il = unsafe { memory::array(il.cast::<u8>(), length)? };
        let client = client::Program::with_il(&context.client, il.to_vec())?;
        let devices = context.devices.clone();
        Ok(handle(client, context, devices))
    }

    fn clSetProgramSpecializationConstant(
        program: cl::cl_program,
        id: cl::cl_uint,
        size: usize,
        value: *const c_void,
    ) -> status {
        let program = lookup::<Program>(program)?;
        // CL_INVALID_PROGRAM if program is not created from an intermediate language.
        if program.client.il().is_empty() {
            return Err(ClError(cl::CL_INVALID_PROGRAM));
        }
        // SAFETY: the caller's value has `size` bytes.
        let value = unsafe { memory::array(value.cast::<u8>(), size)? };
        // CL_INVALID_VALUE if spec_value is NULL or no constant has such a size.
        if value.is_empty() || size > 8 {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        program.client.set_constant(id, value)
    }

    fn clSetProgramReleaseCallback(
        program: cl::cl_program,
        notify: Option<ProgramNotify>,
        _user_data: *mut c_void,
    ) -> status {
        lookup::<Program>(program)?;
        notify.ok_or(ClError(cl::CL_INVALID_VALUE))?;
        // CL_INVALID_OPERATION if no device supports program scope constructors and destructors, as since 3.0 none does.
        Err(ClError(cl::CL_INVALID_OPERATION))
    }

    fn clCreateProgramWithBuiltInKernels(
        context: cl::cl_context,
        num_devices: cl::cl_uint,
        devices: *const cl::cl_device_id,
        names: *const c_char,
    ) -> pointer {
        let context = lookup::<Context>(context)?;
        // SAFETY: the caller's list has `num_devices` devices.
        let devices = unsafe { device::read_list(num_devices, devices)? };
        if devices.iter().any(|device| !context.devices.iter().any(|own| Arc::ptr_eq(own, device))) {
            return Err(ClError(cl::CL_INVALID_DEVICE));
        }
        // SAFETY: the caller's string ends with NUL.
        let names = unsafe { memory::text(names) }.ok_or(ClError(cl::CL_INVALID_VALUE))?;
        let names = names.to_str().map_err(|_| ClError(cl::CL_INVALID_VALUE))?;
        // CL_INVALID_VALUE if kernel_names contains a kernel name that is not supported by any of the devices.
        let known = |name: &str| devices.iter().any(|device| device.has_built_in_kernel(name));
        if !names.split(';').all(known) {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        let clients = device::clients(&devices)?;
        let client = client::Program::with_built_in_kernels(&context.client, &clients, names)?;
        Ok(handle(client, context, devices))
    }

    fn clRetainProgram(program: cl::cl_program) -> status {
        retain::<Program>(program)
    }

    fn clReleaseProgram(program: cl::cl_program) -> status {
        release::<Program>(program)
    }

    fn clBuildProgram(
        program: cl::cl_program,
        num_devices: cl::cl_uint,
        devices: *const cl::cl_device_id,
        options: *const c_char,
        notify: Option<ProgramNotify>,
        user_data: *mut c_void,
    ) -> status {
        let program = lookup::<Program>(program)?;
        if notify.is_none() && !user_data.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's list has `num_devices` devices.
        let devices = device::clients(&unsafe { device::read_list_of(&program.devices, num_devices, devices)? })?;
        // SAFETY: the caller's string ends with NUL.
        let options = unsafe { text_of(options, cl::CL_INVALID_BUILD_OPTIONS)? };
        Build { program, options, step: Step::Build(devices) }.start(notify, UserData(user_data))
    }

    fn clCompileProgram(
        program: cl::cl_program,
        num_devices: cl::cl_uint,
        devices: *const cl::cl_device_id,
        options: *const c_char,
        num_headers: cl::cl_uint,
        headers: *const cl::cl_program,
        names: *mut *const c_char,
        notify: Option<ProgramNotify>,
        user_data: *mut c_void,
    ) -> status {
        let program = lookup::<Program>(program)?;
        if notify.is_none() && !user_data.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // CL_INVALID_VALUE if num_input_headers is zero and the lists are not NULL, or the other way round.
        let without = num_headers == 0;
        if headers.is_null() != without || names.is_null() != without {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's list has `num_devices` devices.
        let devices = device::clients(&unsafe { device::read_list_of(&program.devices, num_devices, devices)? })?;
        // SAFETY: the caller's string ends with NUL.
        let options = unsafe { text_of(options, cl::CL_INVALID_COMPILER_OPTIONS)? };
        // SAFETY: the caller's lists have `num_headers` entries.
        let headers = unsafe { read_headers(num_headers, headers, names)? };
        if !program.client.is_compilable() {
            return Err(ClError(cl::CL_INVALID_OPERATION));
        }
        let step = Step::Compile(devices, headers);
        Build { program, options, step }.start(notify, UserData(user_data))
    }

    fn clLinkProgram(
        context: cl::cl_context,
        num_devices: cl::cl_uint,
        devices: *const cl::cl_device_id,
        options: *const c_char,
        num_programs: cl::cl_uint,
        programs: *const cl::cl_program,
        notify: Option<ProgramNotify>,
        user_data: *mut c_void,
    ) -> pointer_and_code {
        let context = lookup::<Context>(context)?;
        if notify.is_none() && !user_data.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's list has `num_devices` devices.
        let devices = unsafe { device::read_list_of(&context.devices, num_devices, devices)? };
        // SAFETY: the caller's string ends with NUL.
        let options = unsafe { text_of(options, cl::CL_INVALID_LINKER_OPTIONS)? };
        // CL_INVALID_VALUE if num_input_programs is zero or input_programs is NULL.
        if num_programs == 0 {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: the caller's list has `num_programs` programs.
        let programs = unsafe { memory::array(programs, num_programs as usize)? };
        let input = |handle: &cl::cl_program| lookup::<Program>(*handle).map(|it| Arc::clone(&it.client));
        let inputs = programs.iter().map(input).collect::<Result<Vec<_>, _>>()?;
        let client = client::Program::to_link(&context.client, &device::clients(&devices)?)?;
        let made = handle(client, context, devices);
        let linked = link(made, options, inputs, notify, UserData(user_data));
        if linked.is_err() {
            release::<Program>(made)?;
        }
        linked.map(|code| (made, code))
    }

    fn clGetProgramInfo(
        program: cl::cl_program,
        param: cl::cl_program_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let program = lookup::<Program>(program)?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        let kernels = || program.client.kernel_infos().ok_or(ClError(cl::CL_INVALID_PROGRAM_EXECUTABLE));
        match param {
            cl::CL_PROGRAM_REFERENCE_COUNT => answer.value(program.references()),
            cl::CL_PROGRAM_CONTEXT => answer.value(program.context.as_ptr()),
            cl::CL_PROGRAM_NUM_DEVICES => answer.count(program.devices.len()),
            cl::CL_PROGRAM_DEVICES => answer.values(&device_handles(&program.devices)),
            cl::CL_PROGRAM_SOURCE => answer.text(program.client.source()),
            cl::CL_PROGRAM_BINARY_SIZES => {
                answer.values(&binaries(&program).iter().map(|binary| binary.len()).collect::<Vec<_>>())
            }
            cl::CL_PROGRAM_BINARIES => {
                // SAFETY: the caller's value has pointers to room for each binary, or NULL.
                unsafe { copy_binaries(&program, answer) }
            }
            cl::CL_PROGRAM_NUM_KERNELS => answer.value(kernels()?.len()),
            cl::CL_PROGRAM_IL => answer.bytes(program.client.il()),
            cl::CL_PROGRAM_SCOPE_GLOBAL_CTORS_PRESENT | cl::CL_PROGRAM_SCOPE_GLOBAL_DTORS_PRESENT => {
                answer.boolean(false)
            }
            cl::CL_PROGRAM_KERNEL_NAMES => {
                let names: Vec<_> = kernels()?.iter().map(|kernel| kernel.name.clone()).collect();
                answer.text(names.join(";").as_bytes())
            }
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }

    fn clGetProgramBuildInfo(
        program: cl::cl_program,
        device: cl::cl_device_id,
        param: cl::cl_program_build_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let program = lookup::<Program>(program)?;
        let device = lookup::<Device>(device)?;
        let info = program.client.build_info(&device.client()?).ok_or(ClError(cl::CL_INVALID_DEVICE))?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_PROGRAM_BUILD_STATUS if program.building.load(Ordering::Acquire) => {
                answer.value(cl::CL_BUILD_IN_PROGRESS)
            }
            cl::CL_PROGRAM_BUILD_STATUS => answer.value(info.status),
            cl::CL_PROGRAM_BUILD_OPTIONS => answer.text(info.options.as_bytes()),
            cl::CL_PROGRAM_BUILD_LOG => answer.text(info.log.as_bytes()),
            cl::CL_PROGRAM_BINARY_TYPE => answer.value(info.binary_type),
            cl::CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE => answer.value(info.global_variable_bytes),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }
}

fn handle(
    client: Arc<client::Program>,
    context: Handle<Context>,
    devices: Vec<Handle<Device>>,
) -> *mut c_void {
    let building = AtomicBool::new(false);
    Object::new(Program { client, context, devices, building, kernels: AtomicUsize::new(0) }).as_ptr()
}

/// The source strings as one.
///
/// # Safety
/// `strings` is NULL or has `count` strings, each as long as its entry in `lengths`, or up to its NUL where that is 0
/// or `lengths` is NULL.
unsafe fn join(
    count: cl::cl_uint,
    strings: *mut *const c_char,
    lengths: *const usize,
) -> Result<Vec<u8>, ClError> {
    const INVALID: ClError = ClError(cl::CL_INVALID_VALUE);
    // CL_INVALID_VALUE if count is zero or if strings or any entry in strings is NULL.
    if count == 0 {
        return Err(INVALID);
    }
    // SAFETY: `count` strings by this function's contract.
    let strings = unsafe { memory::array(strings.cast_const(), count as usize)? };
    let mut source = Vec::new();
    for (index, string) in strings.iter().enumerate() {
        // SAFETY: as many lengths as strings by this function's contract.
        let length = if lengths.is_null() { 0 } else { unsafe { lengths.add(index).read_unaligned() } };
        if length == 0 {
            // SAFETY: ends with NUL by this function's contract.
            source.extend_from_slice(unsafe { memory::text(*string) }.ok_or(INVALID)?.to_bytes());
        } else {
            // SAFETY: that long by this function's contract.
            source.extend_from_slice(unsafe { memory::array(string.cast::<u8>(), length)? });
        }
    }
    Ok(source)
}

/// A binary given for a device.
type Given<'a> = (Arc<client::Device>, &'a [u8]);

/// The binaries given for devices. One that is missing is marked in `binary_status`.
///
/// # Safety
/// `lengths`, `binaries` and `binary_status` are NULL or have an entry per device; each binary is NULL or as long as
/// its length says.
unsafe fn given_binaries<'a>(
    devices: &[Handle<Device>],
    lengths: *const usize,
    binaries: *mut *const c_uchar,
    binary_status: *mut cl::cl_int,
) -> Result<Vec<Given<'a>>, ClError> {
    // SAFETY: an entry per device by this function's contract.
    let (lengths, binaries) = unsafe {
        (memory::array(lengths, devices.len())?, memory::array(binaries.cast_const(), devices.len())?)
    };
    let mut given = Vec::with_capacity(devices.len());
    let mut invalid = false;
    for (index, device) in devices.iter().enumerate() {
        // SAFETY: as long as its length says by this function's contract.
        let bytes = unsafe { memory::array(binaries[index], lengths[index])? };
        // CL_INVALID_VALUE if lengths[i] is zero or if binaries[i] is NULL, with CL_INVALID_VALUE in binary_status[i].
        if bytes.is_empty() {
            invalid = true;
        }
        if !binary_status.is_null() {
            let status = if bytes.is_empty() { cl::CL_INVALID_VALUE } else { cl::CL_SUCCESS };
            // SAFETY: an entry per device by this function's contract.
            unsafe { memory::write(binary_status.add(index), status) };
        }
        given.push((device.client()?, bytes));
    }
    if invalid { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(given) }
}

/// The binary of each device; an empty one where there is none yet.
fn binaries(program: &Program) -> Vec<Vec<u8>> {
    let mut binaries: Vec<Vec<u8>> =
        program.client.binaries().map(|all| all.iter().map(|one| one.to_vec()).collect()).unwrap_or_default();
    binaries.resize(program.devices.len(), Vec::new());
    binaries
}

/// The one query whose answer goes through pointers in the value.
///
/// # Safety
/// The answer's value has a pointer per device, each NULL or to room for that device's binary.
unsafe fn copy_binaries(program: &Program, answer: Answer) -> Result<(), ClError> {
    let binaries = binaries(program);
    let (room, value, size) = answer.raw();
    let needed = size_of::<*mut u8>() * binaries.len();
    if !value.is_null() {
        if room < needed {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        for (index, binary) in binaries.iter().enumerate() {
            // SAFETY: a pointer per device by this function's contract.
            let target = unsafe { value.cast::<*mut u8>().add(index).read_unaligned() };
            if !target.is_null() {
                // SAFETY: room for the binary by this function's contract.
                unsafe { std::ptr::copy_nonoverlapping(binary.as_ptr(), target, binary.len()) };
            }
        }
    }
    // SAFETY: NULL or writable, as the answer's maker promised.
    unsafe { memory::write(size, needed) };
    Ok(())
}

/// A string of the application, none for NULL; `invalid` is the code where it isn't text.
///
/// # Safety
/// `text` is NULL or ends with NUL.
unsafe fn text_of(text: *const c_char, invalid: cl::cl_int) -> Result<String, ClError> {
    // SAFETY: as promised by the caller.
    match unsafe { memory::text(text) } {
        None => Ok(String::new()),
        Some(text) => Ok(text.to_str().map_err(|_| ClError(invalid))?.to_owned()),
    }
}

/// The headers of a compilation.
type Headers = Vec<(String, Arc<client::Program>)>;

/// # Safety
/// Both lists have `count` entries.
unsafe fn read_headers(
    count: cl::cl_uint,
    headers: *const cl::cl_program,
    names: *mut *const c_char,
) -> Result<Headers, ClError> {
    // SAFETY: as promised by the caller.
    let (headers, names) = unsafe {
        (memory::array(headers, count as usize)?, memory::array(names.cast_const(), count as usize)?)
    };
    let mut read = Vec::with_capacity(headers.len());
    for (header, name) in headers.iter().zip(names) {
        let program = lookup::<Program>(*header)?;
        if name.is_null() {
            return Err(ClError(cl::CL_INVALID_VALUE));
        }
        // SAFETY: not NULL, and ends with NUL.
        read.push((unsafe { text_of(*name, cl::CL_INVALID_VALUE)? }, Arc::clone(&program.client)));
    }
    Ok(read)
}

/// Links, here or in the background; the code to return with the program, or the error without one.
fn link(
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

/// A build that was accepted.
struct Build {
    program: Handle<Program>,
    options: String,
    step: Step,
}

/// Which part of a build.
enum Step {
    Build(Vec<Arc<client::Device>>),
    Compile(Vec<Arc<client::Device>>, Headers),
    Link(Vec<Arc<client::Program>>),
}

impl Build {
    fn start(self, notify: Option<ProgramNotify>, user_data: UserData) -> Result<(), ClError> {
        let program = &self.program;
        // CL_INVALID_OPERATION if there are kernel objects attached to program, or an earlier build has not completed.
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

    /// Builds on a thread of its own, since the callback thread must stay free for events, and tells `notify`.
    fn run_in_background(self, notify: ProgramNotify, user_data: UserData) -> Result<(), ClError> {
        let program = Arc::clone(&self.program);
        let task = move || {
            let UserData(user_data) = { user_data };
            let handle = Arc::clone(&self.program);
            // The outcome is in the build status and log, where the callback finds it.
            let _ = self.run();
            // SAFETY: the application gave this function for this purpose.
            unsafe { notify(handle.as_ptr(), user_data) };
        };
        spawn_without_signals(task).map_err(|_| {
            program.building.store(false, Ordering::Release);
            ClError(cl::CL_OUT_OF_HOST_MEMORY)
        })
    }
}

/// A thread that takes none of the application's signals.
fn spawn_without_signals(task: impl FnOnce() + Send + 'static) -> std::io::Result<()> {
    // SAFETY: both sets are initialised before they are read; only this thread's mask changes, and is put back.
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
