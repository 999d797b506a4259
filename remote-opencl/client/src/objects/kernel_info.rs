//! Properties of kernels that a build returns, for the standard's queries.

use crate::cl;
use crate::objects::arg_types::scalar_size;
use fpga_protocol::v1;
use std::collections::BTreeSet;

/// The kind of value that an argument takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgKind {
    /// A buffer or NULL.
    Buffer,
    /// Local memory: a size and NULL.
    Local,
    /// Bytes by value; with their number if the type is built into OpenCL C.
    Scalar(Option<usize>),
    /// An image.
    Image,
    /// A sampler.
    Sampler,
    /// A pipe.
    Pipe,
    /// A queue on the device.
    DeviceQueue,
    /// Unknown (programs from binaries); any value is accepted.
    Unknown,
}

/// Properties of a kernel, as the runtime reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelInfo {
    /// Function name.
    pub name: String,
    /// Number of arguments.
    pub num_args: u32,
    /// `CL_KERNEL_ATTRIBUTES`.
    pub attributes: String,
    /// Properties of each argument; empty where the runtime gives none (programs from binaries).
    pub args: Vec<ArgInfo>,
    work_groups: Vec<(u64, WorkGroupInfo)>,
    /// Indices of the arguments that take local memory, also if `args` is empty.
    local_args: BTreeSet<u32>,
}

/// Properties of an argument (`clGetKernelArgInfo`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArgInfo {
    /// `cl_kernel_arg_address_qualifier`.
    pub address_qualifier: u32,
    /// `cl_kernel_arg_access_qualifier`.
    pub access_qualifier: u32,
    /// Type as written, for example `float*`.
    pub type_name: String,
    /// `cl_kernel_arg_type_qualifier`.
    pub type_qualifier: u64,
    /// Name as written.
    pub name: String,
}

/// `clGetKernelWorkGroupInfo` for one device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the standard's names")]
pub struct WorkGroupInfo {
    pub work_group_size: u64,
    pub compile_work_group_size: [u64; 3],
    pub local_mem_size: u64,
    pub preferred_multiple: u64,
    pub private_mem_size: u64,
}

impl KernelInfo {
    pub(crate) fn new(info: v1::KernelInfo) -> Self {
        let arg = |arg: v1::KernelArgInfo| ArgInfo {
            address_qualifier: arg.address_qualifier,
            access_qualifier: arg.access_qualifier,
            type_name: arg.type_name,
            type_qualifier: arg.type_qualifier,
            name: arg.name,
        };
        let work_group = |it: v1::KernelWorkGroupInfo| {
            let compiled = it.compile_work_group_size.try_into().unwrap_or_default();
            let info = WorkGroupInfo {
                work_group_size: it.work_group_size,
                compile_work_group_size: compiled,
                local_mem_size: it.local_mem_size,
                preferred_multiple: it.preferred_multiple,
                private_mem_size: it.private_mem_size,
            };
            (it.device, info)
        };
        Self {
            name: info.name,
            // The number comes from the manager. The bound keeps a wrong one from taking all memory.
            num_args: info.num_args.min(4096),
            attributes: info.attributes,
            args: info.args.into_iter().map(arg).collect(),
            work_groups: info.work_groups.into_iter().map(work_group).collect(),
            local_args: info.local_args.into_iter().collect(),
        }
    }

    /// The kind of value that argument `index` takes.
    pub(super) fn arg_kind(&self, index: u32) -> ArgKind {
        let info = usize::try_from(index).ok().and_then(|index| self.args.get(index));
        match info {
            Some(info) => info.kind(),
            None if self.local_args.contains(&index) => ArgKind::Local,
            None => ArgKind::Unknown,
        }
    }

    /// Limits on the device with this id.
    pub(super) fn work_group(&self, device: u64) -> Option<WorkGroupInfo> {
        self.work_groups.iter().find(|(id, _)| *id == device).map(|(_, info)| info.clone())
    }
}

impl ArgInfo {
    /// The kind of value that the argument takes.
    pub(super) fn kind(&self) -> ArgKind {
        match self.address_qualifier {
            _ if self.type_qualifier & cl::KERNEL_ARG_TYPE_PIPE != 0 => ArgKind::Pipe,
            _ if self.type_name == "queue_t" => ArgKind::DeviceQueue,
            _ if ![0, cl::KERNEL_ARG_ACCESS_NONE].contains(&self.access_qualifier) => ArgKind::Image,
            _ if self.type_name == "sampler_t" => ArgKind::Sampler,
            cl::KERNEL_ARG_ADDRESS_GLOBAL | cl::KERNEL_ARG_ADDRESS_CONSTANT => ArgKind::Buffer,
            cl::KERNEL_ARG_ADDRESS_LOCAL => ArgKind::Local,
            cl::KERNEL_ARG_ADDRESS_PRIVATE => ArgKind::Scalar(scalar_size(&self.type_name)),
            _ => ArgKind::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_and_samplers_are_not_taken_for_numbers() {
        let arg = |address_qualifier, access_qualifier, type_name: &str| ArgInfo {
            address_qualifier,
            access_qualifier,
            type_name: type_name.into(),
            type_qualifier: 0,
            name: String::new(),
        };
        let none = cl::KERNEL_ARG_ACCESS_NONE;
        let private = cl::KERNEL_ARG_ADDRESS_PRIVATE;
        assert_eq!(arg(private, none, "float4").kind(), ArgKind::Scalar(Some(16)));
        assert_eq!(arg(private, none, "sampler_t").kind(), ArgKind::Sampler);
        assert_eq!(arg(cl::KERNEL_ARG_ADDRESS_GLOBAL, 0x11A0, "image2d_t").kind(), ArgKind::Image);
        assert_eq!(arg(cl::KERNEL_ARG_ADDRESS_GLOBAL, none, "float*").kind(), ArgKind::Buffer);
    }
}
