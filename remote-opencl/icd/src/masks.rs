//! Answers about platforms and devices: the vendor's, without features that are not forwarded.
//!
//! Programs select devices by names, so names are the vendor's, verbatim. But no answer may claim a feature whose
//! calls are then refused. So SVM and native kernels are absent, and only those extensions remain that concern just
//! the device's compiler and images, or for which OpenCL 3.0 has functions. SVM is optional in OpenCL 3.0 and
//! unknown in 1.2, but mandatory in 2.x, so a 2.x runtime appears as 1.2.

use crate::cl;
use fpga_client::HOST_PIPE_EXTENSION;
use std::borrow::Cow;

/// Highest claimed versions. Every function and query of these versions is implemented here, or may be refused.
const VERSION: (u32, u32) = (3, 0);
const VERSION_BELOW_3: (u32, u32) = (1, 2);

/// `cl_version` has the major version from this bit on, and the minor version from [`MINOR_SHIFT`] on.
const MAJOR_SHIFT: u32 = 22;
const MINOR_SHIFT: u32 = 12;

/// Size of a `cl_name_version` in bytes: the version, then the name with its NUL.
const NAME_VERSION_BYTES: usize = 4 + 64;

/// The standard's value of `CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED` for an implementation without submitted
/// results.
const NEVER_SUBMITTED: &[u8] = b"v0000-01-01-00\0";

/// Text appended to `CL_PLATFORM_VERSION`, in the vendor-specific part.
const MARK: &str = concat!(" (kube-fpga ", env!("CARGO_PKG_VERSION"), ")");

/// `CL_PLATFORM_ICD_SUFFIX_KHR`.
const SUFFIX: &[u8] = b"FPGA\0";

/// Extensions without host functions: those of the kernel language and of images.
const COMPILER_EXTENSIONS: &[&str] = &[
    "cl_altera_channels",
    "cl_khr_3d_image_writes",
    "cl_khr_depth_images",
    "cl_khr_image2d_from_buffer",
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
    "cles_khr_int64",
];

/// Extensions whose host functions are part of OpenCL 3.0, so they are forwarded from 3.0 runtimes.
const EXTENSIONS_OF_3: &[&str] = &[
    "cl_intel_subgroups",
    "cl_intel_subgroups_char",
    "cl_intel_subgroups_long",
    "cl_intel_subgroups_short",
    "cl_khr_il_program",
    "cl_khr_spirv_linkonce_odr",
    "cl_khr_subgroup_extended_types",
    "cl_khr_subgroup_non_uniform_arithmetic",
    "cl_khr_subgroup_shuffle",
    "cl_khr_subgroup_shuffle_relative",
    "cl_khr_subgroups",
];

/// The extension with unified shared memory, which is kept where a device has such memory here, too.
const USM_EXTENSION: &str = "cl_intel_unified_shared_memory";

/// Whether there is unified shared memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Usm {
    /// A device has such memory.
    On,
    /// No device has such memory.
    Off,
}

/// The answer to a `cl_platform_info` parameter; `vendor` returns the vendor's answers.
pub fn platform<'a>(param: u32, usm: Usm, vendor: impl Fn(u32) -> Option<&'a [u8]>) -> Option<Cow<'a, [u8]>> {
    match param {
        cl::CL_PLATFORM_PROFILE | cl::CL_PLATFORM_NAME | cl::CL_PLATFORM_VENDOR => {
            vendor(param).map(Cow::Borrowed)
        }
        cl::CL_PLATFORM_VERSION => {
            Some(Cow::Owned(terminated(capped_version("OpenCL ", &text(vendor(param)?)) + MARK)))
        }
        cl::CL_PLATFORM_EXTENSIONS => {
            let mut extensions = vec!["cl_khr_icd".to_owned()];
            let is_3 = vendor(cl::CL_PLATFORM_VERSION).is_some_and(claims_3);
            extensions.extend(kept_extensions(vendor(param).unwrap_or_default(), is_3, usm));
            Some(Cow::Owned(terminated(extensions.join(" "))))
        }
        cl::CL_PLATFORM_ICD_SUFFIX_KHR => Some(Cow::Borrowed(SUFFIX)),
        // Only for a platform that claims 3.0, for which the vendor's version is the claimed one.
        cl::CL_PLATFORM_NUMERIC_VERSION => {
            claims_3(vendor(cl::CL_PLATFORM_VERSION)?).then(|| vendor(param).map(Cow::Borrowed))?
        }
        cl::CL_PLATFORM_EXTENSIONS_WITH_VERSION => {
            claims_3(vendor(cl::CL_PLATFORM_VERSION)?).then_some(())?;
            let mut extensions = name_version("cl_khr_icd", (1, 0));
            extensions.extend(kept_name_versions(vendor(param).unwrap_or_default(), |name| {
                is_kept(name, true, usm)
            }));
            Some(Cow::Owned(extensions))
        }
        // Resolution of the client's clock, in ns. Times of commands are on that clock.
        cl::CL_PLATFORM_HOST_TIMER_RESOLUTION => {
            claims_3(vendor(cl::CL_PLATFORM_VERSION)?).then(|| Cow::Owned(1_u64.to_ne_bytes().to_vec()))
        }
        _ => None,
    }
}

/// The answer to a query of a device.
#[derive(Debug, PartialEq, Eq)]
pub enum DeviceAnswer<'a> {
    /// A value that this module computed.
    Bytes(Vec<u8>),
    /// The vendor's value.
    Verbatim(&'a [u8]),
    /// The parameter is unknown in the claimed version or to the vendor.
    Unknown,
}

/// The answer to a `cl_device_info` parameter whose value is not a handle; `vendor` returns the vendor's answers.
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
    let is_3 = vendor(cl::CL_DEVICE_VERSION).is_some_and(claims_3);
    let has_usm = vendor(cl::cl_ext::CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL).is_some();
    let usm = if has_usm { Usm::On } else { Usm::Off };
    match param {
        cl::CL_DEVICE_VERSION => version("OpenCL "),
        cl::CL_DEVICE_OPENCL_C_VERSION if is_3 => vendor(param).map_or(Unknown, Verbatim),
        cl::CL_DEVICE_OPENCL_C_VERSION => version("OpenCL C "),
        cl::CL_DEVICE_EXTENSIONS => {
            Bytes(terminated(kept_extensions(vendor(param).unwrap_or_default(), is_3, usm).join(" ")))
        }
        cl::CL_DEVICE_EXECUTION_CAPABILITIES => without(cl::CL_EXEC_NATIVE_KERNEL),
        cl::CL_DEVICE_QUEUE_ON_HOST_PROPERTIES => {
            without(!(cl::CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE | cl::CL_QUEUE_PROFILING_ENABLE))
        }
        // Partitions are the vendor's, except for kinds of extensions.
        cl::CL_DEVICE_PARTITION_PROPERTIES | cl::CL_DEVICE_PARTITION_TYPE => {
            Bytes(kept_partitions(vendor(param).unwrap_or_default()))
        }
        // Features of 2.x are forwarded from 3.0 runtimes only, since in 3.0 each of them is optional.
        cl::CL_DEVICE_QUEUE_ON_DEVICE_PREFERRED_SIZE
        | cl::CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE
        | cl::CL_DEVICE_MAX_ON_DEVICE_QUEUES
        | cl::CL_DEVICE_MAX_ON_DEVICE_EVENTS
        | cl::CL_DEVICE_MAX_PIPE_ARGS
        | cl::CL_DEVICE_PIPE_MAX_ACTIVE_RESERVATIONS
        | cl::CL_DEVICE_PIPE_MAX_PACKET_SIZE
        | cl::CL_DEVICE_PIPE_SUPPORT
        | cl::CL_DEVICE_MAX_NUM_SUB_GROUPS
            if !is_3 || vendor(param).is_none() =>
        {
            Bytes(0_u32.to_ne_bytes().to_vec())
        }
        cl::CL_DEVICE_QUEUE_ON_DEVICE_PROPERTIES | cl::CL_DEVICE_DEVICE_ENQUEUE_CAPABILITIES
            if !is_3 || vendor(param).is_none() =>
        {
            Bytes(0_u64.to_ne_bytes().to_vec())
        }
        cl::CL_DEVICE_IL_VERSION if !is_3 || vendor(param).is_none() => Bytes(vec![0]),
        cl::CL_DEVICE_SVM_CAPABILITIES => Bytes(0_u64.to_ne_bytes().to_vec()),
        // These queries of 3.0 would contradict a lower version.
        cl::CL_DEVICE_NUMERIC_VERSION
        | cl::CL_DEVICE_EXTENSIONS_WITH_VERSION
        | cl::CL_DEVICE_ILS_WITH_VERSION
        | cl::CL_DEVICE_BUILT_IN_KERNELS_WITH_VERSION
        | cl::CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED
        | cl::CL_DEVICE_OPENCL_C_ALL_VERSIONS
        | cl::CL_DEVICE_OPENCL_C_FEATURES
            if !is_3 =>
        {
            Unknown
        }
        cl::CL_DEVICE_EXTENSIONS_WITH_VERSION => {
            Bytes(kept_name_versions(vendor(param).unwrap_or_default(), |name| is_kept(name, true, usm)))
        }
        cl::CL_DEVICE_LATEST_CONFORMANCE_VERSION_PASSED => Bytes(NEVER_SUBMITTED.to_vec()),
        _ => vendor(param).map_or(Unknown, Verbatim),
    }
}

/// Indices of the devices that a type mask selects, given the devices' types; `None` for an invalid mask.
pub fn select_devices(types: &[u64], mask: u64) -> Option<Vec<usize>> {
    const KNOWN: u64 = cl::CL_DEVICE_TYPE_DEFAULT
        | cl::CL_DEVICE_TYPE_CPU
        | cl::CL_DEVICE_TYPE_GPU
        | cl::CL_DEVICE_TYPE_ACCELERATOR
        | cl::CL_DEVICE_TYPE_CUSTOM;
    // Java programs pass the 32 bits of the constant sign-extended.
    if [cl::CL_DEVICE_TYPE_ALL, u64::MAX].contains(&mask) {
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

/// Lowers a version to one that is claimed, such as `OpenCL 2.1 vendor text` to `OpenCL 1.2 vendor text`: 2.x to 1.2,
/// and versions after 3.0 to 3.0.
fn capped_version(prefix: &str, version: &str) -> String {
    let number = version.strip_prefix(prefix).unwrap_or(version);
    let (number, vendor) = number.split_once(' ').unwrap_or((number, ""));
    let claimed = match number.split_once('.').map(|(major, minor)| (major.parse(), minor.parse())) {
        Some((Ok(major), Ok(minor))) if (major, minor) >= VERSION => VERSION,
        Some((Ok(major), Ok(minor))) => VERSION_BELOW_3.min((major, minor)),
        _ => VERSION_BELOW_3,
    };
    let (major, minor) = claimed;
    format!("{prefix}{major}.{minor} {vendor}")
}

/// Whether this library claims 3.0 for a runtime of this version.
pub fn claims_3(version: &[u8]) -> bool {
    capped_version("OpenCL ", &text(version)).starts_with("OpenCL 3.")
}

fn name_version(name: &str, (major, minor): (u32, u32)) -> Vec<u8> {
    let mut bytes = (major << MAJOR_SHIFT | minor << MINOR_SHIFT).to_ne_bytes().to_vec();
    bytes.extend_from_slice(name.as_bytes());
    bytes.resize(NAME_VERSION_BYTES, 0);
    bytes
}

/// The entries of a list of `cl_name_version` whose names satisfy `is_kept`.
fn kept_name_versions(list: &[u8], is_kept: impl Fn(&str) -> bool) -> Vec<u8> {
    list.chunks_exact(NAME_VERSION_BYTES)
        .filter(|entry| is_kept(&text(&entry[4..])))
        .flatten()
        .copied()
        .collect()
}

/// A list of partition kinds, or one kind with its values, without the kind of an extension.
fn kept_partitions(list: &[u8]) -> Vec<u8> {
    let by_names = cl::CL_DEVICE_PARTITION_BY_NAMES_INTEL as u64;
    let entries = list.chunks_exact(8).filter(|entry| **entry != by_names.to_ne_bytes());
    let kept: Vec<u8> = entries.flatten().copied().collect();
    // A single zero entry means that the device can't be partitioned, or is not the result of a partition.
    if kept.is_empty() { vec![0; 8] } else { kept }
}

fn kept_extensions(vendor: &[u8], is_3: bool, usm: Usm) -> Vec<String> {
    let known = |name: &&str| is_kept(name, is_3, usm);
    text(vendor).split_whitespace().filter(known).map(str::to_owned).collect()
}

fn is_kept(name: &str, is_3: bool, usm: Usm) -> bool {
    COMPILER_EXTENSIONS.contains(&name)
        || (is_3 && EXTENSIONS_OF_3.contains(&name))
        || (usm == Usm::On && name == USM_EXTENSION)
        || name == HOST_PIPE_EXTENSION
}

/// A string of the vendor without its NUL.
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
        assert_eq!(
            platform(cl::CL_PLATFORM_NAME, Usm::Off, pocl).unwrap(),
            &b"Portable Computing Language\0"[..]
        );
        let version = platform(cl::CL_PLATFORM_VERSION, Usm::Off, pocl).unwrap();
        let version = std::str::from_utf8(&version).unwrap();
        assert!(version.starts_with("OpenCL 3.0 PoCL 3.1+debian  Linux (kube-fpga "), "{version}");
        assert!(version.ends_with(")\0"));
        assert_eq!(platform(cl::CL_PLATFORM_ICD_SUFFIX_KHR, Usm::Off, pocl).unwrap(), &b"FPGA\0"[..]);
    }

    #[test]
    fn no_version_above_ours_is_claimed_and_none_is_raised() {
        assert_eq!(said(cl::CL_DEVICE_VERSION), "OpenCL 3.0 PoCL HSTR: pthread\0");
        assert_eq!(
            device(cl::CL_DEVICE_OPENCL_C_VERSION, pocl),
            DeviceAnswer::Verbatim(b"OpenCL C 1.2 PoCL\0")
        );
        assert_eq!(capped_version("OpenCL ", "OpenCL 2.1 x"), "OpenCL 1.2 x", "2.x needs SVM and pipes");
        assert_eq!(capped_version("OpenCL ", "OpenCL 1.0 Intel(R) FPGA SDK"), "OpenCL 1.0 Intel(R) FPGA SDK");
        assert_eq!(capped_version("OpenCL ", "OpenCL 10.0"), "OpenCL 3.0 ");
        assert_eq!(capped_version("OpenCL ", "nonsense"), "OpenCL 1.2 ");
    }

    #[test]
    fn extensions_that_need_the_host_are_left_out() {
        assert_eq!(said(cl::CL_DEVICE_EXTENSIONS), "cl_khr_byte_addressable_store cl_khr_fp64\0");
        assert_eq!(platform(cl::CL_PLATFORM_EXTENSIONS, Usm::Off, pocl).unwrap(), &b"cl_khr_icd\0"[..]);
    }

    #[test]
    fn unified_shared_memory_is_named_where_the_vendor_names_it_and_a_device_has_it() {
        let name = b"cl_khr_fp64 cl_intel_unified_shared_memory\0";
        let memory = [15, 0, 0, 0, 0, 0, 0, 0];
        let without = |param| (param == cl::CL_DEVICE_EXTENSIONS).then_some(&name[..]);
        let with = |param| match param {
            cl::cl_ext::CL_DEVICE_DEVICE_MEM_CAPABILITIES_INTEL => Some(&memory[..]),
            param => without(param),
        };
        let unnamed = |param| if param == cl::CL_DEVICE_EXTENSIONS { None } else { with(param) };
        let asked = |answer| if let DeviceAnswer::Bytes(bytes) = answer { bytes } else { Vec::new() };
        assert_eq!(asked(device(cl::CL_DEVICE_EXTENSIONS, without)), b"cl_khr_fp64\0");
        assert_eq!(asked(device(cl::CL_DEVICE_EXTENSIONS, with)), name);
        assert_eq!(asked(device(cl::CL_DEVICE_EXTENSIONS, unnamed)), b"\0");
    }

    #[test]
    fn what_is_not_forwarded_is_not_there() {
        assert_eq!(device(cl::CL_DEVICE_SVM_CAPABILITIES, pocl), DeviceAnswer::Bytes(vec![0; 8]));
        assert_eq!(device(cl::CL_DEVICE_PIPE_SUPPORT, pocl), DeviceAnswer::Bytes(vec![0; 4]));
        let DeviceAnswer::Bytes(kernels) = device(cl::CL_DEVICE_EXECUTION_CAPABILITIES, pocl) else {
            panic!("no answer of ours")
        };
        assert_eq!(kernels, cl::CL_EXEC_KERNEL.to_ne_bytes());
    }

    #[test]
    fn queries_of_3_0_are_answered_by_runtimes_of_3_0_alone() {
        let fpga = |param| match param {
            cl::CL_DEVICE_VERSION => Some(&b"OpenCL 1.2 \0"[..]),
            _ => Some(&[7; NAME_VERSION_BYTES][..]),
        };
        for param in [cl::CL_DEVICE_NUMERIC_VERSION, cl::CL_DEVICE_OPENCL_C_FEATURES] {
            assert_eq!(device(param, fpga), DeviceAnswer::Unknown);
        }
        let three = |param| match param {
            cl::CL_DEVICE_VERSION => Some(&b"OpenCL 3.0 \0"[..]),
            _ => Some(&[7; 4][..]),
        };
        assert_eq!(device(cl::CL_DEVICE_NUMERIC_VERSION, three), DeviceAnswer::Verbatim(&[7; 4]));
        assert_eq!(device(cl::CL_DEVICE_ILS_WITH_VERSION, three), DeviceAnswer::Verbatim(&[7; 4]));
    }

    #[test]
    fn what_came_with_2_x_is_the_vendors_on_3_0_and_nothing_below() {
        let of = |version: &'static [u8]| {
            move |param| match param {
                cl::CL_DEVICE_VERSION => Some(version),
                cl::CL_DEVICE_PIPE_SUPPORT | cl::CL_DEVICE_MAX_NUM_SUB_GROUPS => Some(&[1, 0, 0, 0][..]),
                cl::CL_DEVICE_EXTENSIONS => Some(&b"cl_khr_il_program cles_khr_int64\0"[..]),
                _ => None,
            }
        };
        let (one, three) = (of(b"OpenCL 1.2 \0"), of(b"OpenCL 3.0 \0"));
        for param in [cl::CL_DEVICE_PIPE_SUPPORT, cl::CL_DEVICE_MAX_NUM_SUB_GROUPS] {
            assert_eq!(device(param, three), DeviceAnswer::Verbatim(&[1, 0, 0, 0]));
            assert_eq!(device(param, one), DeviceAnswer::Bytes(vec![0; 4]));
        }
        assert_eq!(device(cl::CL_DEVICE_EXTENSIONS, one), DeviceAnswer::Bytes(b"cles_khr_int64\0".to_vec()));
        let both = b"cl_khr_il_program cles_khr_int64\0".to_vec();
        assert_eq!(device(cl::CL_DEVICE_EXTENSIONS, three), DeviceAnswer::Bytes(both));
        assert_eq!(device(cl::CL_DEVICE_QUEUE_ON_DEVICE_MAX_SIZE, three), DeviceAnswer::Bytes(vec![0; 4]));
    }

    #[test]
    fn partitions_are_the_standards_kinds() {
        let list = |kinds: &[u64]| kinds.iter().flat_map(|kind| kind.to_ne_bytes()).collect::<Vec<u8>>();
        assert_eq!(kept_partitions(&list(&[0x1086, 0x4052, 0x1087])), list(&[0x1086, 0x1087]));
        assert_eq!(kept_partitions(&list(&[0x4052])), list(&[0]));
        assert_eq!(kept_partitions(&[]), list(&[0]));
    }

    #[test]
    fn lists_with_versions_lose_the_same_entries_as_those_without() {
        let list = [name_version("cl_khr_fp64", (1, 0)), name_version("cl_khr_spir", (1, 2))].concat();
        let kept = kept_name_versions(&list, |name| is_kept(name, true, Usm::Off));
        assert_eq!(kept, name_version("cl_khr_fp64", (1, 0)));
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
