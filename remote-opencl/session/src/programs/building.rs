//! Building, compiling and linking of programs, the results for the client, and the bitstreams of a build where
//! sources count as bitstreams.

use super::{Options, Origin, Program, vendors};
use crate::gate::ReconfigurationRefusal;
use crate::inventory::Device;
use crate::programs::Sources;
use crate::task::Need;
use fpga_core::bitstream::Digest;
use fpga_protocol::v1;
use fpga_vendor::{self as vendor, ClError, ClResult};
use opencl_sys::{
    CL_INVALID_BUILD_OPTIONS, CL_INVALID_COMPILER_OPTIONS, CL_INVALID_LINKER_OPTIONS,
    CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, CL_PROGRAM_BINARY_TYPE_LIBRARY,
};
use sha2::{Digest as _, Sha256};
use std::ffi::CString;
use std::sync::Arc;

/// Maximum length of build options in bytes.
const MAX_OPTIONS_BYTES: usize = 64 * 1024;

/// Option that makes the vendor keep the arguments' descriptions. The client never sees it.
const KEEP_ARGUMENT_INFO: &str = " -cl-kernel-arg-info";

impl Program {
    /// Sets a specialization constant for the next build.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_PROGRAM` (-44) if the program was not made from an intermediate language.
    pub fn set_constant(&self, id: u32, value: &[u8]) -> ClResult<()> {
        if !matches!(self.origin, Origin::Linked(..)) {
            return Err(ClError::INVALID_PROGRAM);
        }
        self.vendor()?.set_constant(&vendors(&self.devices), id, value)
    }

    /// The result for the client if the program needs no build.
    pub fn ready(&self) -> v1::BuildResult {
        self.outcome(&self.devices, Ok(())).1
    }

    /// Builds on the calling thread. The status is that of `clBuildProgram`.
    pub fn build(&self, devices: &[Device], options: &Options) -> (i32, v1::BuildResult) {
        self.outcome(devices, self.build_only(devices, options))
    }

    /// Compiles on the calling thread with `headers`. The status is that of `clCompileProgram`.
    pub fn compile(
        &self,
        devices: &[Device],
        options: &Options,
        headers: &[(String, Arc<Self>)],
    ) -> (i32, v1::BuildResult) {
        self.outcome(devices, self.compile_only(devices, options, headers))
    }

    fn compile_only(
        &self,
        devices: &[Device],
        options: &Options,
        headers: &[(String, Arc<Self>)],
    ) -> ClResult<()> {
        let full = self.full_options(options, CL_INVALID_COMPILER_OPTIONS)?;
        let mut vendor_headers = Vec::with_capacity(headers.len());
        for (name, header) in headers {
            let name = CString::new(name.as_str()).map_err(|_| ClError::INVALID_VALUE)?;
            vendor_headers.push((name, header.vendor()?));
        }
        self.vendor()?.compile(&vendors(devices), &full, &vendor_headers, options.included())
    }

    /// Links `programs` into this one, which [`Self::to_link`] made, on the calling thread. The status is that of
    /// `clLinkProgram`.
    pub fn link(&self, options: &Options, programs: &[Arc<Self>]) -> (i32, v1::BuildResult) {
        let linked = self.link_only(options, programs);
        self.outcome(&self.devices, linked)
    }

    fn link_only(&self, options: &Options, programs: &[Arc<Self>]) -> ClResult<()> {
        let full = self.full_options(options, CL_INVALID_LINKER_OPTIONS)?;
        let programs = programs.iter().map(|program| program.vendor()).collect::<ClResult<Vec<_>>>()?;
        let devices = linkable(&self.devices, &programs)?;
        let (linked, program) =
            vendor::Program::link(&self.context.vendor, &vendors(&devices), &full, &programs);
        if let Some(program) = program {
            self.vendor.set(program).map_err(|_| ClError::INVALID_OPERATION)?;
        }
        linked?;
        self.counts_as_bitstream(&self.devices, options);
        Ok(())
    }

    /// The result of a build, compilation or link for the client.
    fn outcome(&self, devices: &[Device], outcome: ClResult<()>) -> (i32, v1::BuildResult) {
        let mut result = v1::BuildResult::default();
        let status = match outcome {
            Ok(()) => opencl_sys::CL_SUCCESS,
            Err(ClError(code)) => code,
        };
        let Ok(program) = self.vendor() else { return (status, result) };
        for device in devices {
            result.devices.push(v1::DeviceBuild {
                device: device.id,
                status: program.build_status(device.vendor).unwrap_or(opencl_sys::CL_BUILD_NONE),
                log: program.build_log(device.vendor).unwrap_or_default(),
                binary_type: program.binary_type(device.vendor).unwrap_or(0),
                global_variable_bytes: program.global_variable_bytes(device.vendor),
            });
        }
        // An object that is not linked has no kernels, and some runtimes crash when asked for them.
        let not_linked = [CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, CL_PROGRAM_BINARY_TYPE_LIBRARY];
        let linked = !result.devices.iter().any(|device| not_linked.contains(&device.binary_type));
        if status == opencl_sys::CL_SUCCESS && linked {
            let kernels = program.kernels().unwrap_or_default();
            result.kernels = kernels.iter().map(|kernel| self.describe(kernel)).collect();
        }
        (status, result)
    }

    fn build_only(&self, devices: &[Device], options: &Options) -> ClResult<()> {
        let full = self.full_options(options, CL_INVALID_BUILD_OPTIONS)?;
        self.vendor()?.build(&vendors(devices), &full, options.included())?;
        self.counts_as_bitstream(devices, options);
        Ok(())
    }

    /// The options for the vendor; fails with `invalid` if they are too long or contain a NUL byte.
    fn full_options(&self, options: &Options, invalid: i32) -> ClResult<CString> {
        let options = &options.for_vendor;
        if options.len() > MAX_OPTIONS_BYTES {
            return Err(ClError(invalid));
        }
        let full = match self.origin {
            Origin::Source(..) => format!("{options}{KEEP_ARGUMENT_INFO}"),
            Origin::Binaries(_) | Origin::Linked(..) => options.clone(),
        };
        CString::new(full).map_err(|_| ClError(invalid))
    }

    /// Records the bitstreams of a build with these options, if sources count as bitstreams.
    fn counts_as_bitstream(&self, devices: &[Device], options: &Options) {
        let bitstreams = self.bitstreams_of_build(devices, options);
        let mut needs = self.needs.lock();
        for (device, bitstream) in devices.iter().zip(bitstreams) {
            needs.retain(|(id, _)| *id != device.id);
            needs.push((device.id, Need::Bitstream(bitstream)));
        }
    }

    /// The bitstream that a build makes for each of these devices; empty if sources don't count as bitstreams.
    #[must_use]
    pub fn bitstreams_of_build(&self, devices: &[Device], options: &Options) -> Vec<Digest> {
        match &self.origin {
            Origin::Source(Sources::AsBitstream, source) | Origin::Linked(Sources::AsBitstream, source) => {
                devices.iter().map(|device| digest_of_build(source, &options.identity, device)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The result for the client if the gate refused the bitstream of a build. `status` is that of the call.
    #[must_use]
    pub fn refused(&self, status: i32, refusal: &ReconfigurationRefusal) -> (i32, v1::BuildResult) {
        let device = |device: &Device| v1::DeviceBuild {
            device: device.id,
            status: opencl_sys::CL_BUILD_ERROR,
            log: refusal.to_string(),
            ..v1::DeviceBuild::default()
        };
        let devices = match self.vendor.get() {
            Some(_) => self.devices.iter().map(device).collect(),
            // The program was to be linked, and there is no program.
            None => Vec::new(),
        };
        (status, v1::BuildResult { devices, kernels: Vec::new() })
    }
}

/// The devices for which all of these programs are compiled. Some runtimes crash when linking for others.
///
/// # Errors
/// `CL_INVALID_OPERATION` (-59) if a device has only some of the programs compiled, or if no device has all.
fn linkable(devices: &[Device], programs: &[&vendor::Program]) -> ClResult<Vec<Device>> {
    const COMPILED: [u32; 2] = [CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, CL_PROGRAM_BINARY_TYPE_LIBRARY];
    let mut linkable = Vec::new();
    for device in devices {
        let is_compiled = |program: &&&vendor::Program| {
            // PoCL reports that type even for a program whose compilation failed.
            program.build_status(device.vendor) != Ok(opencl_sys::CL_BUILD_ERROR)
                && program.binary_type(device.vendor).is_ok_and(|kind| COMPILED.contains(&kind))
        };
        match programs.iter().filter(is_compiled).count() {
            0 => {}
            compiled if compiled == programs.len() => linkable.push(device.clone()),
            _ => return Err(ClError::INVALID_OPERATION),
        }
    }
    if linkable.is_empty() { Err(ClError::INVALID_OPERATION) } else { Ok(linkable) }
}

/// The digest that identifies a program built from source: it covers the source, the options and the device.
fn digest_of_build(source: &Digest, options: &str, device: &Device) -> Digest {
    const CL_DEVICE_NAME: u32 = 0x102B;
    const CL_DRIVER_VERSION: u32 = 0x102D;
    let mut hasher = Sha256::new();
    hasher.update(source.as_bytes());
    for part in [
        options.as_bytes(),
        &vendor::device_info(device.vendor, CL_DEVICE_NAME).unwrap_or_default(),
        &vendor::device_info(device.vendor, CL_DRIVER_VERSION).unwrap_or_default(),
    ] {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    Digest::from_bytes(hasher.finalize().into())
}
