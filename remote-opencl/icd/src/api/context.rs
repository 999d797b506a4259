//! Contexts.

use crate::api::device;
use crate::api::platform::named_or_first;
use crate::cl;
use crate::entry::entry_points;
use crate::handle::{Handle, Object, lookup, release, retain};
use crate::info::Answer;
use crate::memory;
use crate::objects::{Context, Destructor, UserData};
use crate::platforms::{Device, Platform};
use fpga_client as client;
use fpga_client::ClError;
use std::ffi::{c_char, c_void};
use std::sync::{Arc, Mutex, PoisonError};

type ContextNotify = unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void);

entry_points! {
    fn clCreateContext(
        properties: *const cl::cl_context_properties,
        num_devices: cl::cl_uint,
        devices: *const cl::cl_device_id,
        notify: Option<ContextNotify>,
        user_data: *mut c_void,
    ) -> pointer {
        // SAFETY: the caller's list ends with 0.
        let properties = unsafe { Properties::read(properties)? };
        check_notify(notify, user_data)?;
        // SAFETY: the caller's list has `num_devices` devices.
        let devices = unsafe { device::read_list(num_devices, devices)? };
        create(properties, devices)
    }

    fn clCreateContextFromType(
        properties: *const cl::cl_context_properties,
        device_type: cl::cl_device_type,
        notify: Option<ContextNotify>,
        user_data: *mut c_void,
    ) -> pointer {
        // SAFETY: the caller's list ends with 0.
        let properties = unsafe { Properties::read(properties)? };
        check_notify(notify, user_data)?;
        let platform = match &properties.platform {
            Some(platform) => Arc::clone(platform),
            None => named_or_first(std::ptr::null_mut())?,
        };
        let devices = device::of_type(&platform, device_type)?;
        if devices.is_empty() {
            return Err(ClError(cl::CL_DEVICE_NOT_FOUND));
        }
        create(properties, devices)
    }

    fn clRetainContext(context: cl::cl_context) -> status {
        retain::<Context>(context)
    }

    fn clReleaseContext(context: cl::cl_context) -> status {
        release::<Context>(context)
    }

    fn clGetContextInfo(
        context: cl::cl_context,
        param: cl::cl_context_info,
        room: usize,
        value: *mut c_void,
        size: *mut usize,
    ) -> status {
        let context = lookup::<Context>(context)?;
        // SAFETY: the caller's value has room for `room` bytes.
        let answer = unsafe { Answer::new(room, value, size) };
        match param {
            cl::CL_CONTEXT_REFERENCE_COUNT => answer.value(context.references()),
            cl::CL_CONTEXT_NUM_DEVICES => answer.count(context.devices.len()),
            cl::CL_CONTEXT_DEVICES => answer.values(&device_handles(&context.devices)),
            cl::CL_CONTEXT_PROPERTIES => answer.values(&context.properties),
            _ => Err(ClError(cl::CL_INVALID_VALUE)),
        }
    }

    fn clSetContextDestructorCallback(
        context: cl::cl_context,
        notify: Option<unsafe extern "C" fn(cl::cl_context, *mut c_void)>,
        user_data: *mut c_void,
    ) -> status {
        let context = lookup::<Context>(context)?;
        let function = notify.ok_or(ClError(cl::CL_INVALID_VALUE))?;
        let callback = Destructor { function, user_data: UserData(user_data) };
        context.callbacks.lock().unwrap_or_else(PoisonError::into_inner).push(callback);
        Ok(())
    }
}

/// The properties of a context.
struct Properties {
    platform: Option<Handle<Platform>>,
    as_given: Vec<isize>,
}

impl Properties {
    /// # Safety
    /// `list` is NULL or ends with a zero key.
    unsafe fn read(list: *const cl::cl_context_properties) -> Result<Self, ClError> {
        let mut properties = Self { platform: None, as_given: Vec::new() };
        if list.is_null() {
            return Ok(properties);
        }
        // SAFETY: the list ends with a zero key by this function's contract.
        for (key, value) in unsafe { memory::pairs(list) } {
            // CL_INVALID_PROPERTY if the same property name is specified more than once.
            if properties.as_given.iter().step_by(2).any(|seen| *seen == key) {
                return Err(ClError(cl::CL_INVALID_PROPERTY));
            }
            match key {
                cl::CL_CONTEXT_PLATFORM => {
                    properties.platform = Some(lookup::<Platform>(value as *mut c_void)?);
                }
                cl::CL_CONTEXT_INTEROP_USER_SYNC if value == 0 || value == 1 => {}
                _ => return Err(ClError(cl::CL_INVALID_PROPERTY)),
            }
            properties.as_given.extend([key, value]);
        }
        properties.as_given.push(0);
        Ok(properties)
    }
}

fn create(properties: Properties, mut devices: Vec<Handle<Device>>) -> Result<*mut c_void, ClError> {
    // Duplicate devices specified in devices are ignored.
    let mut seen = Vec::new();
    devices.retain(|device| {
        let new = !seen.contains(&device.as_ptr());
        seen.push(device.as_ptr());
        new
    });
    let of_platform =
        |platform: &Handle<Platform>| devices.iter().all(|device| Arc::ptr_eq(&device.platform, platform));
    if properties.platform.as_ref().is_some_and(|platform| !of_platform(platform)) {
        return Err(ClError(cl::CL_INVALID_DEVICE));
    }
    if let Some(first) = devices.first() {
        first.platform.refresh();
    }
    let context = Context {
        client: client::Context::new(&device::clients(&devices)?)?,
        devices,
        properties: properties.as_given,
        callbacks: Mutex::new(Vec::new()),
        default_queues: Mutex::new(Vec::new()),
    };
    Ok(Object::new(context).as_ptr())
}

/// CL_INVALID_VALUE if pfn_notify is NULL but user_data is not NULL. The function is never called, since this
/// library reports errors by return values only.
fn check_notify(notify: Option<ContextNotify>, user_data: *mut c_void) -> Result<(), ClError> {
    if notify.is_none() && !user_data.is_null() { Err(ClError(cl::CL_INVALID_VALUE)) } else { Ok(()) }
}

/// The handles of devices, as `clGet*Info` returns them.
pub fn device_handles(devices: &[Handle<Device>]) -> Vec<*mut c_void> {
    devices.iter().map(|device| device.as_ptr()).collect()
}
