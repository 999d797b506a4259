//! The two functions that a loader looks up.

use crate::config::Config;
use crate::info::Room;
use crate::state::configure;
use crate::table::{ENTRIES, Watching, layered};
use crate::{cl, commands, contexts, programs, queues};
use std::ffi::c_void;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::catch_unwind;

/// Describes the layer to the loader.
///
/// # Safety
/// Each pointer is NULL or writable, as the loader guarantees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clGetLayerInfo(
    param_name: cl::cl_layer_info,
    size: usize,
    value: *mut c_void,
    size_ret: *mut usize,
) -> cl::cl_int {
    let room = Room { size, value, size_ret };
    match param_name {
        // SAFETY: the loader's pointers, which are NULL or writable by this function's contract.
        cl::CL_LAYER_API_VERSION => unsafe { room.answer(&cl::CL_LAYER_API_VERSION_100.to_ne_bytes()) },
        // SAFETY: the loader's pointers, which are NULL or writable by this function's contract.
        cl::CL_LAYER_NAME => unsafe { room.answer(b"kube-fpga\0") },
        _ => cl::CL_INVALID_VALUE,
    }
}

/// Gives the loader the layer's table in exchange for the loader's own.
///
/// # Safety
/// The table has `num_entries` functions and the other pointers are writable, as the loader guarantees.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clInitLayer(
    num_entries: cl::cl_uint,
    target_dispatch: *const cl::cl_icd_dispatch,
    num_entries_ret: *mut cl::cl_uint,
    layer_dispatch_ret: *mut *const cl::cl_icd_dispatch,
) -> cl::cl_int {
    if target_dispatch.is_null() || num_entries_ret.is_null() || layer_dispatch_ret.is_null() {
        return cl::CL_INVALID_VALUE;
    }
    let watching = catch_unwind(watching).unwrap_or(Watching::Off);
    // SAFETY: the table has `num_entries` functions by this function's contract.
    let table = unsafe { layered(target_dispatch, num_entries as usize, watching) };
    let entries = num_entries.min(u32::try_from(ENTRIES).unwrap_or_default());
    // SAFETY: neither is null, so both are writable.
    unsafe {
        num_entries_ret.write(entries);
        layer_dispatch_ret.write(table);
    }
    cl::CL_SUCCESS
}

/// Puts the functions that watch commands, contexts, programs and queues into `table`.
fn insert(table: &mut cl::cl_icd_dispatch) {
    commands::insert(table);
    contexts::insert(table);
    programs::insert(table);
    queues::insert(table);
}

fn watching() -> Watching {
    if std::env::var_os("FPGA_DEVICE_MANAGERS").is_some_and(|value| !value.is_empty()) {
        log("off: FPGA_DEVICE_MANAGERS is set, and what goes to a device manager is reported there");
        return Watching::Off;
    }
    match Config::read(|name| std::env::var(name).ok()) {
        Ok(None) => Watching::Off,
        Ok(Some(config)) => {
            log(&format!("reports to {} as device {}", config.endpoint, config.device.id));
            configure(config);
            Watching::On(insert)
        }
        Err(error) => {
            log(&format!("off: {error}"));
            Watching::Off
        }
    }
}

/// Appends a line to the file that `FPGA_LAYER_LOG` names. The application's own output streams are not used.
fn log(line: &str) {
    let Some(path) = std::env::var_os("FPGA_LAYER_LOG") else { return };
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        // An error, such as a full disk, cannot be reported anywhere.
        let _ = writeln!(file, "libfpga_opencl_layer[{}] {line}", std::process::id());
    }
}
