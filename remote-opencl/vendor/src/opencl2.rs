//! Functions of OpenCL 2.0 and later: queues on devices, pipes, sub-groups, and programs from an intermediate
//! language.
//!
//! A loader calls through the vendor's table, and the table of a vendor of OpenCL 1.2 ends after that version. So
//! no function is called for a device of an earlier version than the function's.

use crate::api::{call, check};
use crate::extension::has_extension;
use crate::handles::{Context, Handle as _, Memory, Queue};
use crate::info::{DeviceId, device_info, text};
use crate::kernel::Kernel;
use crate::object::{self, Kind, VendorObject};
use crate::program::Program;
use fpga_protocol::cl_error::{ClError, ClResult};
use fpga_protocol::host_pipes::EXTENSION;
use opencl_sys::{
    CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE, CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE, CL_DEVICE_VERSION,
    CL_MEM_HOST_NO_ACCESS, CL_MEM_READ_WRITE, CL_QUEUE_PROPERTIES, CL_QUEUE_SIZE, cl_command_queue, cl_mem,
    cl_mem_flags, cl_program,
};
use std::ptr;

/// Maximum number of sizes in a query about sub-groups, and in its answer.
pub const MAX_SIZES: usize = 3;

/// The flags of a pipe of which kernels have both ends.
const KERNELS_ALONE: cl_mem_flags = CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS;

impl DeviceId {
    /// Major and minor number of `CL_DEVICE_VERSION`; (1, 0) if the vendor's text is not valid.
    #[must_use]
    pub fn version(self) -> (u32, u32) {
        let said = device_info(self, CL_DEVICE_VERSION).map(text).unwrap_or_default();
        version_of(&said).unwrap_or((1, 0))
    }

    fn need(self, version: (u32, u32)) -> ClResult<()> {
        if self.version() >= version { Ok(()) } else { Err(ClError::INVALID_OPERATION) }
    }

    /// Size in bytes of a queue on this device if the program requests none.
    #[must_use]
    pub fn preferred_queue_size(self) -> u64 {
        self.number(CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE)
    }

    /// A number from the vendor's description of the device; 0 if there is none.
    fn number(self, param: u32) -> u64 {
        device_info(self, param).map(|bytes| crate::info::number(&bytes)).unwrap_or(0)
    }
}

impl Queue {
    /// Makes a queue on the device, to which kernels enqueue. `properties` contain `CL_QUEUE_ON_DEVICE`. A `size`
    /// of 0 is the device's preferred size.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_OPERATION` (-59) if the device's version has no such queues;
    /// `CL_INVALID_QUEUE_PROPERTIES` (-35) if the device has none or none of that size, since PoCL ends the process
    /// then.
    pub fn on_device(context: &Context, device: DeviceId, properties: u64, size: u32) -> ClResult<Self> {
        device.need((2, 0))?;
        let most = device.number(CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE);
        if most == 0 || u64::from(size) > most {
            return Err(ClError::INVALID_QUEUE_PROPERTIES);
        }
        let of = context.cell().clone();
        let raw = create_on_device(&of, device, properties, size)?;
        let queue = Self::own(raw, opencl_sys::CL_SUCCESS)?;
        object::remember(queue.cell(), Kind::Other, move |_| create_on_device(&of, device, properties, size));
        Ok(queue)
    }

    /// Makes this queue, which is on the device, the one that `get_default_queue()` returns there.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_OPERATION` (-59) if the device's version is below 2.1.
    pub fn become_default(&self, context: &Context, device: DeviceId) -> ClResult<()> {
        device.need((2, 1))?;
        become_default(context.cell(), device, self.raw())?;
        let of = context.cell().clone();
        object::and_then(self.cell(), move |queue| become_default(&of, device, queue));
        Ok(())
    }
}

fn create_on_device(
    context: &VendorObject,
    device: DeviceId,
    properties: u64,
    size: u32,
) -> ClResult<cl_command_queue> {
    let mut list = vec![u64::from(CL_QUEUE_PROPERTIES), properties];
    if size != 0 {
        list.extend([u64::from(CL_QUEUE_SIZE), u64::from(size)]);
    }
    list.push(0);
    let mut status = 0;
    // SAFETY: context and device are live, and the list ends with 0.
    let queue = unsafe {
        call!(clCreateCommandQueueWithProperties(context.alive()?, device.0, list.as_ptr(), &raw mut status))
    };
    check(status).map(|()| queue)
}

fn become_default(context: &VendorObject, device: DeviceId, queue: cl_command_queue) -> ClResult<()> {
    // SAFETY: context, device and queue are live.
    check(unsafe { call!(clSetDefaultDeviceCommandQueue(context.alive()?, device.0, queue)) })
}

pub(crate) fn create_pipe(
    context: &VendorObject,
    flags: cl_mem_flags,
    packet_size: u32,
    max_packets: u32,
) -> ClResult<cl_mem> {
    let mut status = 0;
    // SAFETY: the context is live, and no properties are passed.
    let pipe = unsafe {
        call!(clCreatePipe(context.alive()?, flags, packet_size, max_packets, ptr::null(), &raw mut status))
    };
    check(status).map(|()| pipe)
}

fn create_with_il(context: &VendorObject, il: &[u8]) -> ClResult<cl_program> {
    let mut status = 0;
    // SAFETY: the context is live, and the vendor copies `il.len()` bytes.
    let program = unsafe {
        call!(clCreateProgramWithIL(context.alive()?, il.as_ptr().cast(), il.len(), &raw mut status))
    };
    check(status).map(|()| program)
}

fn set_constant(program: cl_program, id: u32, value: &[u8]) -> ClResult<()> {
    // SAFETY: the program is live, and the vendor reads `value.len()` bytes.
    check(unsafe {
        call!(clSetProgramSpecializationConstant(program, id, value.len(), value.as_ptr().cast()))
    })
}

impl Memory {
    /// Makes a pipe of `max_packets` packets. `device` is one of the context's.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_OPERATION` (-59) if the device's version has no pipes, and it has no host pipes.
    pub fn pipe(context: &Context, device: DeviceId, packet_size: u32, max_packets: u32) -> ClResult<Self> {
        if !has_extension(device, EXTENSION) {
            device.need((2, 0))?;
        }
        let of = context.cell().clone();
        let pipe =
            Self::own(create_pipe(&of, KERNELS_ALONE, packet_size, max_packets)?, opencl_sys::CL_SUCCESS)?;
        // The pipe's packets are not kept.
        object::remember(pipe.cell(), Kind::Other, move |_| {
            create_pipe(&of, KERNELS_ALONE, packet_size, max_packets)
        });
        Ok(pipe)
    }
}

impl Kernel {
    /// The answer of `clGetKernelSubGroupInfo`. At most `room` bytes of it are filled.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_VALUE` (-30) if `input` has more than `MAX_SIZES` sizes;
    /// `CL_INVALID_OPERATION` (-59) if the device's version is below 2.1.
    pub fn sub_group_info(
        &self,
        device: DeviceId,
        param: u32,
        input: &[usize],
        room: usize,
    ) -> ClResult<Vec<u8>> {
        device.need((2, 1))?;
        if input.len() > MAX_SIZES {
            return Err(ClError::INVALID_VALUE);
        }
        let mut value = vec![0_u8; room.min(MAX_SIZES * size_of::<usize>())];
        let mut needed = 0;
        // SAFETY: kernel and device are live, and both arrays are NULL or have the given length.
        check(unsafe {
            call!(clGetKernelSubGroupInfo(
                self.raw(),
                device.0,
                param,
                size_of_val(input),
                if input.is_empty() { ptr::null() } else { input.as_ptr().cast() },
                value.len(),
                if value.is_empty() { ptr::null_mut() } else { value.as_mut_ptr().cast() },
                &raw mut needed
            ))
        })?;
        value.resize(needed.min(MAX_SIZES * size_of::<usize>()), 0);
        Ok(value)
    }
}

impl Program {
    /// Makes a program from an intermediate language.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_OPERATION` (-59) if the version of a device is below 2.1.
    pub fn with_il(context: &Context, devices: &[DeviceId], il: &[u8]) -> ClResult<Self> {
        for device in devices {
            device.need((2, 1))?;
        }
        let program = Self::own(create_with_il(context.cell(), il)?, opencl_sys::CL_SUCCESS)?;
        if object::is_on() {
            let (of, il) = (context.cell().clone(), il.to_vec());
            object::remember(program.cell(), Kind::Program { images: Vec::new() }, move |_| {
                create_with_il(&of, &il)
            });
        }
        Ok(program)
    }

    /// Sets a specialization constant for the next build for these devices.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_OPERATION` (-59) if the version of a device is below 2.2.
    pub fn set_constant(&self, devices: &[DeviceId], id: u32, value: &[u8]) -> ClResult<()> {
        for device in devices {
            device.need((2, 2))?;
        }
        set_constant(self.raw(), id, value)?;
        if object::is_on() {
            let value = value.to_vec();
            object::and_then(self.cell(), move |program| set_constant(program, id, &value));
        }
        Ok(())
    }
}

/// The numbers in a text such as `OpenCL 3.0 PoCL HSTR`.
fn version_of(said: &str) -> Option<(u32, u32)> {
    let number = said.strip_prefix("OpenCL ")?.split(' ').next()?;
    let (major, minor) = number.split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_nonsense_is_none() {
        assert_eq!(version_of("OpenCL 3.0 PoCL HSTR"), Some((3, 0)));
        assert_eq!(version_of("OpenCL 1.2 "), Some((1, 2)));
        assert_eq!(version_of("OpenCL 2.1"), Some((2, 1)));
        assert_eq!(version_of("1.2"), None);
        assert_eq!(version_of("OpenCL x"), None);
    }
}
