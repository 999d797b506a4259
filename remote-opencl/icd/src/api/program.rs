//! Programs.

mod binaries;
mod building;

use crate::api::context::device_handles;
use crate::api::device;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, Object, lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, Program, UserData};
use crate::platforms::Device;
use building::{Build, ProgramNotify, Step, link, read_headers, text_of};
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::{c_char, c_uchar, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

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
        let given = unsafe { binaries::given(&devices, lengths, binaries, binary_status)? };
        let (result, statuses) = match client::Program::with_binaries(&context.client, &given) {
            Ok((client, statuses)) => (Ok(client), statuses),
            Err(error) => (Err(error.error), error.statuses),
        };
        if !binary_status.is_null() {
            for (index, status) in statuses.iter().take(devices.len()).enumerate() {
                // SAFETY: `index` is less than `num_devices`, for which the caller's list has room.
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
        // SAFETY: the caller's code has `length` bytes.
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
        // CL_INVALID_VALUE if spec_value is NULL, or spec_size is not a size that a constant can have.
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
        // CL_INVALID_OPERATION if no device supports program scope constructors and destructors. Since OpenCL 3.0
        // none does.
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
        // CL_INVALID_VALUE if num_input_headers is zero and the lists are not NULL, or it is not zero and a list is
        // NULL.
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
                answer.values(&binaries::of(&program).iter().map(|binary| binary.len()).collect::<Vec<_>>())
            }
            cl::CL_PROGRAM_BINARIES => {
                // SAFETY: the caller's value is NULL or has a pointer for each binary, which is NULL or points to
                // room for the binary.
                unsafe { binaries::copy(&program, answer) }
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

/// Concatenates the source strings.
///
/// # Safety
/// `strings` is NULL or has `count` strings. Each is as long as its entry in `lengths`, or ends with NUL if that
/// entry is 0 or `lengths` is NULL.
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
    // SAFETY: the list is NULL or has `count` strings by this function's contract.
    let strings = unsafe { memory::array(strings.cast_const(), count as usize)? };
    let mut source = Vec::new();
    for (index, string) in strings.iter().enumerate() {
        // SAFETY: there are as many lengths as strings by this function's contract.
        let length = if lengths.is_null() { 0 } else { unsafe { lengths.add(index).read_unaligned() } };
        if length == 0 {
            // SAFETY: the string ends with NUL by this function's contract.
            source.extend_from_slice(unsafe { memory::text(*string) }.ok_or(INVALID)?.to_bytes());
        } else {
            // SAFETY: the string has `length` bytes by this function's contract.
            source.extend_from_slice(unsafe { memory::array(string.cast::<u8>(), length)? });
        }
    }
    Ok(source)
}
