//! What we say of platforms and devices: the vendor's answers, less what is not forwarded.
//!
//! Programs select by names, so names are the vendor's, verbatim. But nothing may be claimed that a call would then
//! refuse: the version is capped at 1.2, images, SVM, pipes, device queues, sub-devices, linking and built-in kernels
//! are "none", and of the extensions those remain that concern the device's compiler alone.

use crate::cl;
use std::borrow::Cow;

/// Highest version of which every function and query is here.
const VERSION: (u32, u32) = (1, 2);

/// Our mark, in the part of `CL_PLATFORM_VERSION` that is the vendor's to use.
const MARK: &str = concat!(" (kube-fpga ", env!("CARGO_PKG_VERSION"), ")");

/// `CL_PLATFORM_ICD_SUFFIX_KHR`.
const SUFFIX: &[u8] = b"FPGA\0";

/// Extensions that need no host function and no host query: the kernel language's.
const COMPILER_EXTENSIONS: &[&str] = &[
    "cl_altera_channels",
    "cl_intel_channels",
    "cl_intel_printf",
    "cl_khr_byte_addressable_store",
    "cl_khr_expect_assume",
    "cl_khr_extended_bit_ops",
    "cl_khr_fp16",
    "cl_khr_fp64",
    "cl_khr_global_int32_base_atomics",
    "cl_khr_global_int32_extended_atomics",
    "cl_khr_int64_base_atomics",
    "cl_khr_int64_extended_atomics",
    "cl_khr_kernel_clock",
    "cl_khr_local_int32_base_atomics",
    "cl_khr_local_int32_extended_atomics",
];

/// Our answer to a `cl_platform_info` parameter; `vendor` gives the vendor's.
pub fn platform<'a>(param: u32, vendor: impl Fn(u32) -> Option<&'a [u8]>) -> Option<Cow<'a, [u8]>> {
    match param {
        cl::CL_PLATFORM_PROFILE | cl::CL_PLATFORM_NAME | cl::CL_PLATFORM_VENDOR => {
            vendor(param).map(Cow::Borrowed)
        }
        cl::CL_PLATFORM_VERSION => {
            Some(Cow::Owned(terminated(capped_version("OpenCL ", &text(vendor(param)?)) + MARK)))
        }
        cl::CL_PLATFORM_EXTENSIONS => {
            let mut extensions = vec!["cl_khr_icd".to_owned()];
            extensions.extend(kept_extensions(vendor(param).unwrap_or_default()));
            Some(Cow::Owned(terminated(extensions.join(" "))))
        }
        cl::CL_PLATFORM_ICD_SUFFIX_KHR => Some(Cow::Borrowed(SUFFIX)),
        _ => None,
    }
}

/// An answer about a device.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceAnswer<'a> {
    /// Ours.
    Bytes(Vec<u8>),
    /// The vendor's.
    Verbatim(&'a [u8]),
    /// Neither the claimed version nor the vendor knows the parameter.
    Unknown,
}

/// Our answer to a `cl_device_info` parameter that is not a handle; `vendor` gives the vendor's.
pub fn device<'a>(param: u32, vendor: impl Fn(u32) -> Option<&'a [u8]>) -> DeviceAnswer<'a> {
    use DeviceAnswer::{Bytes, Unknown, Verbatim};

    let without = |unwanted: u64| match vendor(param).and_then(|value| value.try_into().ok()) {
        Some(value) => Bytes((u64::from_ne_bytes(value) & !unwanted).to_ne_bytes().to_vec()),
        None => Unknown,
    };
    let version = |prefix: &str| match vendor(param) {
        Some(value) => Bytes(terminated(capped_version(prefix, &text(value)))),
        None => Unknown,
    };
    match param {
        cl::CL_DEVICE_VERSION => version("OpenCL "),
        cl::CL_DEVICE_OPENCL_C_VERSION => version("OpenCL C "),
        cl::CL_DEVICE_EXTENSIONS => {
            Bytes(terminated(kept_extensions(vendor(param).unwrap_or_default()).join(" ")))
        }
        cl::CL_DEVICE_EXECUTION_CAPABILITIES => without(cl::CL_EXEC_NATIVE_KERNEL),
        cl::CL_DEVICE_QUEUE_ON_HOST_PROPERTIES => {
            without(!(cl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | cl::CL_QUEUE_PROFILING_ENABLE))
        }
        // Where a program is compiled and linked apart.
        cl::CL_DEVICE_LINKER_AVAILABLE
        | cl::CL_DEVICE_IMAGE_SUPPORT
        | cl::CL_DEVICE_MAX_READ_IMAGE_ARGS
        | cl::CL_DEVICE_MAX_WRITE_IMAGE_ARGS
        | cl::CL_DEVICE_MAX_READ_WRITE_IMAGE_ARGS
        | cl::CL_DEVICE_MAX_SAMPLERS
        | cl::CL_DEVICE_IMAGE_PITCH_ALIGNMENT
        | cl::CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT
        | cl::CL_DEVICE_PARTITION_MAX_SUB_DEVICES
        | cl::CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE
        | cl::CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE
        | cl::CL_DEVICE_MAX_ON_DEVICE_QUEUES
        | cl::CL_DEVICE_MAX_ON_DEVICE_EVENTS
        | cl::CL_DEVICE_MAX_PIPE_ARGS
        | cl::CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS
        | cl::CL_DEVICE_PIPE_MAX_PACKET_SIZE
        | cl::CL_DEVICE_PIPE_SUPPORT
        | cl::CL_DEVICE_MAX_NUM_SUB_GROUPS => Bytes(0_u32.to_ne_bytes().to_vec()),
        cl::CL_DEVICE_IMAGE2D_MAX_WIDTH
        | cl::CL_DEVICE_IMAGE2D_MAX_HEIGHT
        | cl::CL_DEVICE_IMAGE3D_MAX_WIDTH
        | cl::CL_DEVICE_IMAGE3D_MAX_HEIGHT
        | cl::CL_DEVICE_IMAGE3D_MAX_DEPTH
        | cl::CL_DEVICE_IMAGE_MAX_BUFFER_SIZE
        | cl::CL_DEVICE_IMAGE_MAX_ARRAY_SIZE
        | cl::CL_DEVICE_PARTITION_AFFINITY_DOMAIN
        | cl::CL_DEVICE_SVM_CAPABILITIES
        | cl::CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES
        | cl::CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES
        // One zero entry: the device can't be partitioned, and is none that came of a partition.
        | cl::CL_DEVICE_PARTITION_PROPERTIES
        | cl::CL_DEVICE_PARTITION_TYPE => Bytes(0_u64.to_ne_bytes().to_vec()),
        cl::CL_DEVICE_BUILT_IN_KERNELS | cl::CL_DEVICE_IL_VERSION => Bytes(vec![0]),
        // They would contradict the version.
        cl::CL_DEVICE_NUMERIC_VERSION
        | cl::CL_DEVICE_EXTENSIONS_WITH_VERSION
        | cl::CL_DEVICE_ILS_WITH_VERSION
        | cl::CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION
        | cl::CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED => Unknown,
        _ => vendor(param).map_or(Unknown, Verbatim),
    }
}

/// Indexes of the devices, given by their types, that a type mask selects; None for a mask that is none.
pub fn select_devices(types: &[u64], mask: u64) -> Option<Vec<usize>> {
    const KNOWN: u64 = cl::CL_DEVICE_TYPE_DEFAULT
        | cl::CL_DEVICE_TYPE_CPU
        | cl::CL_DEVICE_TYPE_GPU
        | cl::CL_DEVICE_TYPE_ACCELERATOR
        | cl::CL_DEVICE_TYPE_CUSTOM;
    if mask == cl::CL_DEVICE_TYPE_ALL {
        // All available devices except CL_DEVICE_TYPE_CUSTOM.
        return Some(
            (0..types.len()).filter(|&index| types[index] & cl::CL_DEVICE_TYPE_CUSTOM == 0).collect(),
        );
    }
    if mask == 0 || mask & !KNOWN != 0 {
        return None;
    }
    let default = types.iter().position(|kind| kind & cl::CL_DEVICE_TYPE_DEFAULT != 0).unwrap_or(0);
    let selected = |index: usize| {
        let by_default = mask & cl::CL_DEVICE_TYPE_DEFAULT != 0 && index == default;
        by_default || types[index] & mask & !cl::CL_DEVICE_TYPE_DEFAULT != 0
    };
    Some((0..types.len()).filter(|&index| selected(index)).collect())
}

/// `OpenCL 3.0 vendor text` as `OpenCL 1.2 vendor text`; lower versions as they are.
fn capped_version(prefix: &str, version: &str) -> String {
    let number = version.strip_prefix(prefix).unwrap_or(version);
    let (number, vendor) = number.split_once(' ').unwrap_or((number, ""));
    let claimed = match number.split_once('.').map(|(major, minor)| (major.parse(), minor.parse())) {
        Some((Ok(major), Ok(minor))) => VERSION.min((major, minor)),
        _ => VERSION,
    };
    let (major, minor) = claimed;
    format!("{prefix}{major}.{minor} {vendor}")
}

fn kept_extensions(vendor: &[u8]) -> Vec<String> {
    let known = |name: &&str| COMPILER_EXTENSIONS.contains(name);
    text(vendor).split_whitespace().filter(known).map(str::to_owned).collect()
}

/// A vendor's string without its NUL.
fn text(value: &[u8]) -> String {
    String::from_utf8_lossy(value.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned()
}

fn terminated(text: String) -> Vec<u8> {
    let mut bytes = text.into_bytes();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pocl(param: u32) -> Option<&'static [u8]> {
        match param {
            cl::CL_PLATFORM_NAME => Some(b"Portable Computing Language\0"),
            cl::CL_PLATFORM_VERSION => Some(b"OpenCL 3.0 PoCL 3.1+debian  Linux\0"),
            cl::CL_PLATFORM_EXTENSIONS => Some(b"cl_khr_icd cl_pocl_content_size\0"),
            cl::CL_DEVICE_VERSION => Some(b"OpenCL 3.0 PoCL HSTR: pthread\0"),
            cl::CL_DEVICE_OPENCL_C_VERSION => Some(b"OpenCL C 1.2 PoCL\0"),
            cl::CL_DEVICE_EXTENSIONS => Some(b"cl_khr_byte_addressable_store cl_khr_fp64 cl_khr_spir \0"),
            cl::CL_DEVICE_SVM_CAPABILITIES => Some(&[15, 0, 0, 0, 0, 0, 0, 0]),
            cl::CL_DEVICE_EXECUTION_CAPABILITIES => Some(&[3, 0, 0, 0, 0, 0, 0, 0]),
            cl::CL_DEVICE_MAX_COMPUTE_UNITS => Some(&[2, 0, 0, 0]),
            _ => None,
        }
    }

    fn said(param: u32) -> String {
        let DeviceAnswer::Bytes(bytes) = device(param, pocl) else { panic!("no answer of ours") };
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn names_are_the_vendors_and_the_version_bears_our_mark() {
        assert_eq!(platform(cl::CL_PLATFORM_NAME, pocl).unwrap(), &b"Portable Computing Language\0"[..]);
        let version = platform(cl::CL_PLATFORM_VERSION, pocl).unwrap();
        let version = std::str::from_utf8(&version).unwrap();
        assert!(version.starts_with("OpenCL 1.2 PoCL 3.1+debian  Linux (kube-fpga "), "{version}");
        assert!(version.ends_with(")\0"));
        assert_eq!(platform(cl::CL_PLATFORM_ICD_SUFFIX_KHR, pocl).unwrap(), &b"FPGA\0"[..]);
    }

    #[test]
    fn no_version_above_ours_is_claimed_and_none_is_raised() {
        assert_eq!(said(cl::CL_DEVICE_VERSION), "OpenCL 1.2 PoCL HSTR: pthread\0");
        assert_eq!(said(cl::CL_DEVICE_OPENCL_C_VERSION), "OpenCL C 1.2 PoCL\0");
        assert_eq!(capped_version("OpenCL ", "OpenCL 1.0 Intel(R) FPGA SDK"), "OpenCL 1.0 Intel(R) FPGA SDK");
        assert_eq!(capped_version("OpenCL ", "OpenCL 10.0"), "OpenCL 1.2 ");
        assert_eq!(capped_version("OpenCL ", "nonsense"), "OpenCL 1.2 ");
    }

    #[test]
    fn extensions_that_need_the_host_are_left_out() {
        assert_eq!(said(cl::CL_DEVICE_EXTENSIONS), "cl_khr_byte_addressable_store cl_khr_fp64\0");
        assert_eq!(platform(cl::CL_PLATFORM_EXTENSIONS, pocl).unwrap(), &b"cl_khr_icd\0"[..]);
    }

    #[test]
    fn what_is_not_forwarded_is_not_there() {
        assert_eq!(device(cl::CL_DEVICE_SVM_CAPABILITIES, pocl), DeviceAnswer::Bytes(vec![0; 8]));
        assert_eq!(device(cl::CL_DEVICE_IMAGE_SUPPORT, pocl), DeviceAnswer::Bytes(vec![0; 4]));
        let DeviceAnswer::Bytes(kernels) = device(cl::CL_DEVICE_EXECUTION_CAPABILITIES, pocl) else {
            panic!("no answer of ours")
        };
        assert_eq!(kernels, cl::CL_EXEC_KERNEL.to_ne_bytes());
        assert_eq!(device(cl::CL_DEVICE_NUMERIC_VERSION, pocl), DeviceAnswer::Unknown);
    }

    #[test]
    fn everything_else_is_the_vendors() {
        assert_eq!(device(cl::CL_DEVICE_MAX_COMPUTE_UNITS, pocl), DeviceAnswer::Verbatim(&[2, 0, 0, 0]));
        assert_eq!(device(0x7777, pocl), DeviceAnswer::Unknown);
    }

    #[test]
    fn a_type_mask_selects_devices() {
        let types = [cl::CL_DEVICE_TYPE_CPU, cl::CL_DEVICE_TYPE_ACCELERATOR, cl::CL_DEVICE_TYPE_CUSTOM];
        let select = |mask| select_devices(&types, mask);
        assert_eq!(select(cl::CL_DEVICE_TYPE_ALL), Some(vec![0, 1]));
        assert_eq!(select(cl::CL_DEVICE_TYPE_DEFAULT), Some(vec![0]));
        assert_eq!(select(cl::CL_DEVICE_TYPE_DEFAULT | cl::CL_DEVICE_TYPE_ACCELERATOR), Some(vec![0, 1]));
        assert_eq!(select(cl::CL_DEVICE_TYPE_ACCELERATOR), Some(vec![1]));
        assert_eq!(select(cl::CL_DEVICE_TYPE_CUSTOM), Some(vec![2]));
        assert_eq!(select(cl::CL_DEVICE_TYPE_GPU), Some(vec![]));
        assert_eq!(select(0), None);
        assert_eq!(select(1 << 20), None);
        assert_eq!(select_devices(&[], cl::CL_DEVICE_TYPE_DEFAULT), Some(vec![]));
    }
}
