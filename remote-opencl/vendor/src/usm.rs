//! Unified shared memory (`cl_intel_unified_shared_memory`): what devices can do, and kernel arguments that are addresses.
//!
//! Allocations are memory of this process, not the vendor's: buffers use it as their host memory, and kernels get its
//! addresses. So only devices count whose kernels can use any address of this process.

use crate::api::check;
use crate::extension::extension;
use crate::info::{DeviceId, device_info, number};
use crate::kernel::{ArgKind, Kernel};
use crate::shared_bytes::SharedBytes;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::{CL_DEVICE_SVM_CAPABILITIES, CL_DEVICE_SVM_FINE_GRAIN_SYSTEM, cl_kernel};
use std::ffi::{CStr, c_void};

/// `CL_DEVICE_HOST_MEM_CAPABILITIES_INTEL`; the parameters for the other kinds of memory follow it.
const HOST_MEM_CAPABILITIES: u32 = 0x4190;
/// `CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL`.
const ACCESS: u64 = 1;

const SET_POINTER: &CStr = c"clSetKernelArgMemPointerINTEL";

type SetPointer = unsafe extern "C" fn(cl_kernel, u32, *const c_void) -> i32;

/// The vendor's answers about unified shared memory: values of `cl_device_unified_shared_memory_capabilities_intel`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UsmCapabilities {
    /// Allocations of the host.
    pub host: u64,
    /// Allocations of a device.
    pub device_only: u64,
    /// Shared allocations of one device.
    pub single_device_shared: u64,
    /// Shared allocations of several devices.
    pub cross_device_shared: u64,
}

impl UsmCapabilities {
    /// The capabilities of a device; `None` unless the device has allocations of its own, and its kernels can use any
    /// address of this process.
    #[must_use]
    pub fn of(device: DeviceId) -> Option<Self> {
        let ask = |param| device_info(device, param).map_or(0, |value| number(&value));
        let [host, device_only, single_device_shared, cross_device_shared] =
            [0, 1, 2, 3].map(|kind| ask(HOST_MEM_CAPABILITIES + kind));
        let any_address = ask(CL_DEVICE_SVM_CAPABILITIES) & CL_DEVICE_SVM_FINE_GRAIN_SYSTEM != 0;
        let is_usable = any_address && device_only & ACCESS != 0 && set_pointer_of(device).is_ok();
        is_usable.then_some(Self { host, device_only, single_device_shared, cross_device_shared })
    }
}

impl Kernel {
    /// Sets an argument to the address of the byte at `offset`, or of the end. The caller keeps the bytes until the
    /// launches of the kernel with it have ended. `device` is one of the kernel's.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_ARG_VALUE` (-50) if the argument is no pointer or the offset is beyond the end;
    /// `CL_INVALID_OPERATION` (-59) if the vendor has no unified shared memory.
    pub fn set_pointer(
        &mut self,
        index: u32,
        bytes: &SharedBytes,
        offset: usize,
        device: DeviceId,
    ) -> ClResult<()> {
        let kind = self.kinds().get(index as usize).ok_or(ClError::INVALID_ARG_INDEX)?;
        if *kind != ArgKind::Buffer || offset > bytes.len() {
            return Err(ClError::INVALID_ARG_VALUE);
        }
        let set = set_pointer_of(device)?;
        // SAFETY: the kernel is live. The vendor keeps the address only; it lies in the bytes or at their end, which the
        // caller keeps mapped.
        check(unsafe { set(self.raw(), index, bytes.address().wrapping_add(offset).cast_const().cast()) })
    }
}

/// The vendor's function that sets an argument to an address.
fn set_pointer_of(device: DeviceId) -> ClResult<SetPointer> {
    let address = extension(device, SET_POINTER)?;
    // SAFETY: the address is not NULL, and the extension defines the type of the function of this name.
    Ok(unsafe { std::mem::transmute::<*mut c_void, SetPointer>(address) })
}
