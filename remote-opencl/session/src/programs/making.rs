//! Creation of programs: from source, an intermediate language, built-in kernels, binaries, or other programs.

use super::{Origin, Program, choose, digest, vendors};
use crate::context::Context;
use crate::inventory::Device;
use crate::programs::Sources;
use crate::task::Need;
use bytes::Bytes;
use fpga_core::bitstream::Digest;
use fpga_protocol::limits::MAX_SOURCE_BYTES;
use fpga_protocol::v1;
use fpga_vendor::{self as vendor, ClError, ClResult};
use parking_lot::Mutex;
use sha2::{Digest as _, Sha256};
use std::ffi::CString;
use std::sync::{Arc, OnceLock};

impl Program {
    /// A program without needs, kept binaries and charge.
    fn of(
        context: Arc<Context>,
        devices: Vec<Device>,
        origin: Origin,
        vendor: OnceLock<vendor::Program>,
    ) -> Self {
        let (needs, kept) = (Mutex::default(), Mutex::default());
        Self { context, devices, origin, vendor, needs, kept, _charge: None }
    }

    /// Makes a program from source.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_VALUE` (-30) if the source is empty or too long.
    pub fn with_source(context: Arc<Context>, source: &[u8], sources: Sources) -> ClResult<Self> {
        if source.is_empty() || source.len() > MAX_SOURCE_BYTES {
            return Err(ClError::INVALID_VALUE);
        }
        let vendor = vendor::Program::with_source(&context.vendor, source)?;
        let digest = Digest::from_bytes(Sha256::digest(source).into());
        let devices = context.devices.clone();
        Ok(Self::of(context, devices, Origin::Source(sources, digest), vendor.into()))
    }

    /// Makes a program from an intermediate language.
    ///
    /// # Errors
    /// The vendor's error; `CL_INVALID_VALUE` (-30) if the bytes are none or too many.
    pub fn with_il(context: Arc<Context>, il: &[u8], sources: Sources) -> ClResult<Self> {
        if il.is_empty() || il.len() > MAX_SOURCE_BYTES {
            return Err(ClError::INVALID_VALUE);
        }
        let vendor = vendor::Program::with_il(&context.vendor, &vendors(&context.devices), il)?;
        let digest = Digest::from_bytes(Sha256::digest(il).into());
        let devices = context.devices.clone();
        Ok(Self::of(context, devices, Origin::Linked(sources, digest), vendor.into()))
    }

    /// Makes a program of built-in kernels.
    ///
    /// # Errors
    /// The vendor's error, such as `CL_INVALID_VALUE` (-30) if a device has no such kernel; `CL_INVALID_DEVICE`
    /// (-33) if a device is not of the context.
    pub fn with_built_in_kernels(
        context: Arc<Context>,
        devices: &[u64],
        names: &str,
        sources: Sources,
    ) -> ClResult<Self> {
        let devices = choose(&context.devices, devices)?;
        let c_names = CString::new(names).map_err(|_| ClError::INVALID_VALUE)?;
        let vendor = vendor::Program::with_built_in_kernels(&context.vendor, &vendors(&devices), &c_names)?;
        let digest = Digest::from_bytes(Sha256::digest(names).into());
        Ok(Self::of(context, devices, Origin::Linked(sources, digest), vendor.into()))
    }

    /// Makes a program from binaries. Their bytes may arrive later: see [`Self::load`].
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` (-33) if a device is not of the context or occurs twice; `CL_INVALID_VALUE` (-30) if
    /// there are no binaries or a digest is not 32 bytes long.
    pub fn with_binaries(context: Arc<Context>, binaries: &[v1::BinaryRef]) -> ClResult<Self> {
        if binaries.is_empty() {
            return Err(ClError::INVALID_VALUE);
        }
        let mut devices: Vec<Device> = Vec::new();
        let mut digests = Vec::new();
        for binary in binaries {
            let device = context.devices.iter().find(|device| device.id == binary.device);
            let device = device.ok_or(ClError::INVALID_DEVICE)?;
            if devices.iter().any(|other| other.id == device.id) {
                return Err(ClError::INVALID_DEVICE);
            }
            devices.push(device.clone());
            digests.push(digest(&binary.digest).ok_or(ClError::INVALID_VALUE)?);
        }
        let needs =
            devices.iter().zip(&digests).map(|(device, digest)| (device.id, Need::Bitstream(*digest)));
        let needs = Mutex::new(needs.collect());
        Ok(Self { needs, ..Self::of(context, devices, Origin::Binaries(digests), OnceLock::new()) })
    }

    /// Makes a program to be linked of `programs`: see [`Self::link`].
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` (-30) if `programs` is empty; `CL_INVALID_CONTEXT` (-34) if one is of another context;
    /// `CL_INVALID_DEVICE` (-33) if a device is not of the context.
    pub fn to_link(
        context: Arc<Context>,
        devices: &[u64],
        programs: &[Arc<Self>],
        sources: Sources,
    ) -> ClResult<Self> {
        if programs.is_empty() {
            return Err(ClError::INVALID_VALUE);
        }
        let mut hasher = Sha256::new();
        for program in programs {
            if !Arc::ptr_eq(&program.context, &context) {
                return Err(ClError::INVALID_CONTEXT);
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
        let devices = choose(&context.devices, devices)?;
        Ok(Self::of(context, devices, Origin::Linked(sources, digest), OnceLock::new()))
    }

    /// Makes the vendor's program from all binaries. Returns the result and the vendor's status of each binary.
    pub fn load(&self, binaries: &[Bytes]) -> (ClResult<()>, Vec<i32>) {
        let binaries: Vec<_> = self
            .devices
            .iter()
            .zip(binaries)
            .map(|(device, bytes)| (device.vendor, bytes.as_ref()))
            .collect();
        let (program, statuses) =
            vendor::Program::with_binaries(&self.context.vendor, self.digests(), &binaries);
        match program {
            Ok(program) => match self.vendor.set(program) {
                Ok(()) => (Ok(()), statuses),
                Err(_) => (Err(ClError::INVALID_OPERATION), statuses),
            },
            Err(error) => (Err(error), statuses),
        }
    }
}
