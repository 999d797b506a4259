//! Programs of a session: from source or through the digest gate, built on a thread of their own, and what is told
//! of their kernels (B-8).

use crate::config::Sources;
use crate::gate::Refusal;
use crate::inventory::Device;
use crate::objects::{Context, lock};
use crate::quotas::Charge;
use crate::task::Need;
use crate::vendor::{self, ClError, ClResult};
use bytes::Bytes;
use fpga_core::bitstream::Digest;
use fpga_protocol::v1;
use opencl_sys::{
    CL_INVALID_BINARY, CL_INVALID_BUILD_OPTIONS, CL_INVALID_COMPILER_OPTIONS, CL_INVALID_CONTEXT,
    CL_INVALID_DEVICE, CL_INVALID_LINKER_OPTIONS, CL_INVALID_PROGRAM_EXECUTABLE, CL_INVALID_VALUE,
    CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, CL_PROGRAM_BINARY_TYPE_LIBRARY,
};
use sha2::{Digest as _, Sha256};
use std::ffi::CString;
use std::sync::{Arc, Mutex, OnceLock};

/// Longest source and longest build options.
pub const MAX_SOURCE_BYTES: usize = 16 << 20;
const MAX_OPTIONS_BYTES: usize = 64 * 1024;

/// Makes the vendor keep what each argument is. Never shown to the client.
const KEEP_ARGUMENT_INFO: &str = " -cl-kernel-arg-info";

/// A program.
#[derive(Debug)]
pub struct Program {
    /// Its context.
    pub context: Arc<Context>,
    /// What it is for, in order.
    pub devices: Vec<Device>,
    origin: Origin,
    vendor: OnceLock<vendor::Program>,
    /// What its kernels need on each device.
    needs: Mutex<Vec<(u64, Need)>>,
    /// Binaries that are here while others are yet to come, whatever the store does.
    kept: Mutex<Vec<(Digest, Bytes)>>,
    /// On its tenant's account.
    _charge: Option<Charge>,
}

#[derive(Debug)]
enum Origin {
    /// The digest of the text.
    Source(Sources, Digest),
    /// In the order of the devices.
    Binaries(Vec<Digest>),
    /// What the programs that were linked come from; the digest of an intermediate language, or of built-in kernels' names.
    Linked(Sources, Digest),
}

impl Program {
    /// A program from source.
    ///
    /// # Errors
    /// The vendor's.
    pub fn with_source(context: Arc<Context>, source: &[u8], sources: Sources) -> ClResult<Self> {
        if source.is_empty() || source.len() > MAX_SOURCE_BYTES {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let vendor = vendor::Program::with_source(&context.vendor, source)?;
        let digest = Digest::from_bytes(Sha256::digest(source).into());
        Ok(Self {
            devices: context.devices.clone(),
            context,
            origin: Origin::Source(sources, digest),
            vendor: OnceLock::from(vendor),
            needs: Mutex::default(),
            kept: Mutex::default(),
            _charge: None,
        })
    }

    /// A program in an intermediate language.
    ///
    /// # Errors
    /// The vendor's.
    pub fn with_il(context: Arc<Context>, il: &[u8], sources: Sources) -> ClResult<Self> {
        if il.is_empty() || il.len() > MAX_SOURCE_BYTES {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let vendor = vendor::Program::with_il(&context.vendor, &vendors(&context.devices), il)?;
        let digest = Digest::from_bytes(Sha256::digest(il).into());
        Ok(Self {
            devices: context.devices.clone(),
            context,
            origin: Origin::Linked(sources, digest),
            vendor: OnceLock::from(vendor),
            needs: Mutex::default(),
            kept: Mutex::default(),
            _charge: None,
        })
    }

    /// A program of kernels that the devices have built in.
    ///
    /// # Errors
    /// The vendor's; -30 where a device has no such kernel, -33 where a device is not of the context.
    pub fn with_built_in_kernels(
        context: Arc<Context>,
        devices: &[u64],
        names: &str,
        sources: Sources,
    ) -> ClResult<Self> {
        let devices = choose(&context.devices, devices)?;
        let c_names = CString::new(names).map_err(|_| ClError(CL_INVALID_VALUE))?;
        let vendor = vendor::Program::with_built_in_kernels(&context.vendor, &vendors(&devices), &c_names)?;
        let digest = Digest::from_bytes(Sha256::digest(names).into());
        Ok(Self {
            devices,
            context,
            origin: Origin::Linked(sources, digest),
            vendor: OnceLock::from(vendor),
            needs: Mutex::default(),
            kept: Mutex::default(),
            _charge: None,
        })
    }

    /// What a client is told of it where it needs no build.
    pub fn ready(&self) -> v1::BuildResult {
        self.outcome(&self.devices, Ok(())).1
    }

    /// Sets a specialization constant for the next build.
    ///
    /// # Errors
    /// The vendor's; -44 where it was not made of an intermediate language.
    pub fn set_constant(&self, id: u32, value: &[u8]) -> ClResult<()> {
        if !matches!(self.origin, Origin::Linked(..)) {
            return Err(ClError(opencl_sys::CL_INVALID_PROGRAM));
        }
        self.vendor()?.set_constant(&vendors(&self.devices), id, value)
    }

    /// A program from binaries, whose bytes may still have to come: see [`Self::load`].
    ///
    /// # Errors
    /// -33 where a device is not of the context or named twice, -30 where a digest has no 32 bytes.
    pub fn with_binaries(context: Arc<Context>, binaries: &[v1::BinaryRef]) -> ClResult<Self> {
        if binaries.is_empty() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let mut devices: Vec<Device> = Vec::new();
        let mut digests = Vec::new();
        for binary in binaries {
            let device = context.devices.iter().find(|device| device.id == binary.device);
            let device = *device.ok_or(ClError(CL_INVALID_DEVICE))?;
            if devices.contains(&device) {
                return Err(ClError(CL_INVALID_DEVICE));
            }
            devices.push(device);
            digests.push(digest(&binary.digest).ok_or(ClError(CL_INVALID_VALUE))?);
        }
        let needs =
            devices.iter().zip(&digests).map(|(device, digest)| (device.id, Need::Bitstream(*digest)));
        Ok(Self {
            needs: Mutex::new(needs.collect()),
            context,
            devices,
            origin: Origin::Binaries(digests),
            vendor: OnceLock::new(),
            kept: Mutex::default(),
            _charge: None,
        })
    }

    /// A program that is yet to be linked of these: see [`Self::link`].
    ///
    /// # Errors
    /// -30 where there are none, -34 where one is of another context, -33 where a device is not of the context.
    pub fn to_link(
        context: Arc<Context>,
        devices: &[u64],
        programs: &[Arc<Self>],
        sources: Sources,
    ) -> ClResult<Self> {
        if programs.is_empty() {
            return Err(ClError(CL_INVALID_VALUE));
        }
        let mut hasher = Sha256::new();
        for program in programs {
            if !Arc::ptr_eq(&program.context, &context) {
                return Err(ClError(CL_INVALID_CONTEXT));
            }
            match &program.origin {
                Origin::Source(_, digest) | Origin::Linked(_, digest) => hasher.update(digest.as_bytes()),
                Origin::Binaries(digests) => {
                    for digest in digests {
                        hasher.update(digest.as_bytes());
                    }
                }
            }
        }
        let digest = Digest::from_bytes(hasher.finalize().into());
        Ok(Self {
            devices: choose(&context.devices, devices)?,
            context,
            origin: Origin::Linked(sources, digest),
            vendor: OnceLock::new(),
            needs: Mutex::default(),
            kept: Mutex::default(),
            _charge: None,
        })
    }

    /// With the charge for it, which it keeps.
    #[must_use]
    pub fn charged(self, charge: Charge) -> Self {
        Self { _charge: Some(charge), ..self }
    }

    /// The digests of its binaries; none of a program from source.
    #[must_use]
    pub fn digests(&self) -> &[Digest] {
        match &self.origin {
            Origin::Source(..) | Origin::Linked(..) => &[],
            Origin::Binaries(digests) => digests,
        }
    }

    /// What it is made of: the digest of its source, or of its binaries.
    #[must_use]
    pub fn identity(&self) -> &[Digest] {
        match &self.origin {
            Origin::Source(_, source) | Origin::Linked(_, source) => std::slice::from_ref(source),
            Origin::Binaries(digests) => digests,
        }
    }

    /// A binary of the program that was here before.
    #[must_use]
    pub fn kept(&self, digest: &Digest) -> Option<Bytes> {
        lock(&self.kept).iter().find(|(kept, _)| kept == digest).map(|(_, bytes)| bytes.clone())
    }

    /// These are to stay until the others have come.
    pub fn keep(&self, binaries: Vec<(Digest, Bytes)>) {
        *lock(&self.kept) = binaries;
    }

    /// So is this one.
    pub fn keep_also(&self, digest: Digest, bytes: Bytes) {
        let mut kept = lock(&self.kept);
        if kept.iter().all(|(other, _)| *other != digest) {
            kept.push((digest, bytes));
        }
    }

    /// Makes the vendor's program once all binaries are there; the vendor's status of each.
    ///
    /// # Errors
    /// The vendor's, with the statuses.
    pub fn load(&self, binaries: &[Bytes]) -> (ClResult<()>, Vec<i32>) {
        let binaries: Vec<_> = self
            .devices
            .iter()
            .zip(binaries)
            .map(|(device, bytes)| (device.vendor, bytes.as_ref()))
            .collect();
        let (program, statuses) = vendor::Program::with_binaries(&self.context.vendor, &binaries);
        match program {
            Ok(program) => match self.vendor.set(program) {
                Ok(()) => (Ok(()), statuses),
                Err(_) => (Err(ClError(opencl_sys::CL_INVALID_OPERATION)), statuses),
            },
            Err(error) => (Err(error), statuses),
        }
    }

    /// What the vendor takes it for on each device; nothing where it has no program.
    #[must_use]
    pub fn binary_types(&self) -> Vec<u32> {
        let Some(vendor) = self.vendor.get() else { return Vec::new() };
        self.devices.iter().map(|device| vendor.binary_type(device.vendor).unwrap_or(0)).collect()
    }

    /// Whether the vendor has it.
    #[must_use]
    pub fn is_loaded(&self) -> bool {
        self.vendor.get().is_some()
    }

    /// The vendor's program.
    ///
    /// # Errors
    /// -42 while its binaries are missing.
    pub fn vendor(&self) -> ClResult<&vendor::Program> {
        self.vendor.get().ok_or(ClError(CL_INVALID_BINARY))
    }

    /// What its kernels need of the slots when they run on that device.
    #[must_use]
    pub fn need(&self, device: u64) -> Need {
        let needs = lock(&self.needs);
        needs.iter().find(|(id, _)| *id == device).map_or(Need::AnySlot, |(_, need)| *need)
    }

    /// The devices of these ids; all where there are none.
    ///
    /// # Errors
    /// -33 where one is not of the program.
    pub fn chosen(&self, ids: &[u64]) -> ClResult<Vec<Device>> {
        choose(&self.devices, ids)
    }

    /// Builds on the calling thread. The status is that of the standard's call.
    pub fn build(&self, devices: &[Device], options: &str) -> (i32, v1::BuildResult) {
        self.outcome(devices, self.build_only(devices, options))
    }

    /// Compiles on the calling thread, with these programs as headers. The status is that of the standard's call.
    pub fn compile(
        &self,
        devices: &[Device],
        options: &str,
        headers: &[(String, Arc<Self>)],
    ) -> (i32, v1::BuildResult) {
        self.outcome(devices, self.compile_only(devices, options, headers))
    }

    fn compile_only(
        &self,
        devices: &[Device],
        options: &str,
        headers: &[(String, Arc<Self>)],
    ) -> ClResult<()> {
        let options = self.full_options(options, CL_INVALID_COMPILER_OPTIONS)?;
        let mut vendor_headers = Vec::with_capacity(headers.len());
        for (name, header) in headers {
            let name = CString::new(name.as_str()).map_err(|_| ClError(CL_INVALID_VALUE))?;
            vendor_headers.push((name, header.vendor()?));
        }
        self.vendor()?.compile(&vendors(devices), &options, &vendor_headers)
    }

    /// Links these programs to this one, which [`Self::to_link`] made, on the calling thread.
    pub fn link(&self, options: &str, programs: &[Arc<Self>]) -> (i32, v1::BuildResult) {
        let linked = self.link_only(options, programs);
        self.outcome(&self.devices, linked)
    }

    fn link_only(&self, options: &str, programs: &[Arc<Self>]) -> ClResult<()> {
        let full = self.full_options(options, CL_INVALID_LINKER_OPTIONS)?;
        let programs = programs.iter().map(|program| program.vendor()).collect::<ClResult<Vec<_>>>()?;
        let (linked, program) =
            vendor::Program::link(&self.context.vendor, &vendors(&self.devices), &full, &programs);
        if let Some(program) = program {
            self.vendor.set(program).map_err(|_| ClError(opencl_sys::CL_INVALID_OPERATION))?;
        }
        linked?;
        self.counts_as_bitstream(&self.devices, options);
        Ok(())
    }

    /// What a client is told of a build, compilation or link.
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
        // What is not linked has none, and some runtimes crash over the question.
        let not_linked = [CL_PROGRAM_BINARY_TYPE_COMPILED_OBJECT, CL_PROGRAM_BINARY_TYPE_LIBRARY];
        let linked = !result.devices.iter().any(|device| not_linked.contains(&device.binary_type));
        if status == opencl_sys::CL_SUCCESS && linked {
            let kernels = program.kernels().unwrap_or_default();
            result.kernels = kernels.iter().map(|kernel| self.describe(kernel)).collect();
        }
        (status, result)
    }

    fn build_only(&self, devices: &[Device], options: &str) -> ClResult<()> {
        let full = self.full_options(options, CL_INVALID_BUILD_OPTIONS)?;
        self.vendor()?.build(&vendors(devices), &full)?;
        self.counts_as_bitstream(devices, options);
        Ok(())
    }

    /// The options for the vendor; `invalid` is the code where they can't be any.
    fn full_options(&self, options: &str, invalid: i32) -> ClResult<CString> {
        if options.len() > MAX_OPTIONS_BYTES {
            return Err(ClError(invalid));
        }
        let full = match self.origin {
            Origin::Source(..) => format!("{options}{KEEP_ARGUMENT_INFO}"),
            Origin::Binaries(_) | Origin::Linked(..) => options.to_owned(),
        };
        CString::new(full).map_err(|_| ClError(invalid))
    }

    /// It has been built from source with these options.
    fn counts_as_bitstream(&self, devices: &[Device], options: &str) {
        let bitstreams = self.bitstreams_of_build(devices, options);
        let mut needs = lock(&self.needs);
        for (device, bitstream) in devices.iter().zip(bitstreams) {
            needs.retain(|(id, _)| *id != device.id);
            needs.push((device.id, Need::Bitstream(bitstream)));
        }
    }

    /// Which bitstreams come of building it for these devices: one for each, or none where sources don't count as such.
    #[must_use]
    pub fn bitstreams_of_build(&self, devices: &[Device], options: &str) -> Vec<Digest> {
        match &self.origin {
            Origin::Source(Sources::AsBitstream, source) | Origin::Linked(Sources::AsBitstream, source) => {
                devices.iter().map(|device| digest_of_build(source, options, device)).collect()
            }
            _ => Vec::new(),
        }
    }

    /// What a client is told where the gate refused what would come of a build; `status` is that of the call.
    #[must_use]
    pub fn refused(&self, status: i32, refusal: &Refusal) -> (i32, v1::BuildResult) {
        let device = |device: &Device| v1::DeviceBuild {
            device: device.id,
            status: opencl_sys::CL_BUILD_ERROR,
            log: refusal.to_string(),
            ..v1::DeviceBuild::default()
        };
        let devices = match self.vendor.get() {
            Some(_) => self.devices.iter().map(device).collect(),
            // A link of which nothing came.
            None => Vec::new(),
        };
        (status, v1::BuildResult { devices, kernels: Vec::new() })
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// The vendor's; -46 where the name is none.
    pub fn kernel(&self, name: &str) -> ClResult<vendor::Kernel> {
        let name = CString::new(name).map_err(|_| ClError(opencl_sys::CL_INVALID_KERNEL_NAME))?;
        let program = self.vendor().map_err(|_| ClError(CL_INVALID_PROGRAM_EXECUTABLE))?;
        vendor::Kernel::new(program, &name)
    }

    /// What the vendor tells of a kernel.
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
        }
    }
}

/// The devices of these ids; all where there are none.
fn choose(all: &[Device], ids: &[u64]) -> ClResult<Vec<Device>> {
    if ids.is_empty() {
        return Ok(all.to_vec());
    }
    let find = |id: &u64| all.iter().find(|device| device.id == *id).copied();
    ids.iter().map(|id| find(id).ok_or(ClError(CL_INVALID_DEVICE))).collect()
}

fn vendors(devices: &[Device]) -> Vec<vendor::DeviceId> {
    devices.iter().map(|device| device.vendor).collect()
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

/// A digest of 32 bytes.
#[must_use]
pub fn digest(bytes: &[u8]) -> Option<Digest> {
    <[u8; 32]>::try_from(bytes).ok().map(Digest::from_bytes)
}

/// What names a program built from source: its text, the options and the device.
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
