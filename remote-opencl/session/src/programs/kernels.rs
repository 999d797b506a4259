//! The kernels of a program, and their descriptions (B-8).

use super::Program;
use fpga_protocol::v1;
use fpga_vendor::{self as vendor, ClError, ClResult};
use std::ffi::CString;

impl Program {
    /// Makes the kernel with this name.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_KERNEL_NAME` (-46) if the name contains a NUL byte;
    /// `CL_INVALID_PROGRAM_EXECUTABLE` (-45) while the vendor has no program.
    pub fn kernel(&self, name: &str) -> ClResult<vendor::Kernel> {
        let name = CString::new(name).map_err(|_| ClError::INVALID_KERNEL_NAME)?;
        let program = self.vendor().map_err(|_| ClError::INVALID_PROGRAM_EXECUTABLE)?;
        vendor::Kernel::new(program, &name)
    }

    /// The vendor's description of a kernel.
    #[must_use]
    pub fn describe(&self, kernel: &vendor::Kernel) -> v1::KernelInfo {
        let count = u32::try_from(kernel.kinds().len()).unwrap_or(0);
        let args: Option<Vec<_>> = (0..count).map(|index| argument(kernel, index)).collect();
        let work_groups = self.devices.iter().map(|device| {
            let info = kernel.work_group_info(device.vendor);
            v1::KernelWorkGroupInfo {
                device: device.id,
                work_group_size: info.work_group_size,
                compile_work_group_size: info.compile_work_group_size,
                local_mem_size: info.local_mem_size,
                preferred_multiple: info.preferred_multiple,
                private_mem_size: info.private_mem_size,
            }
        });
        v1::KernelInfo {
            name: kernel.name().unwrap_or_default(),
            num_args: count,
            attributes: kernel.attributes().unwrap_or_default(),
            args: args.unwrap_or_default(),
            work_groups: work_groups.collect(),
            local_args: (0..count).filter(|index| kernel.is_local(*index)).collect(),
        }
    }
}

fn argument(kernel: &vendor::Kernel, index: u32) -> Option<v1::KernelArgInfo> {
    let info = kernel.arg_info(index).ok()?;
    Some(v1::KernelArgInfo {
        address_qualifier: info.address_qualifier,
        access_qualifier: info.access_qualifier,
        type_name: info.type_name,
        type_qualifier: info.type_qualifier,
        name: info.name,
    })
}
