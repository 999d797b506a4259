//! Programs from source and from binaries ("bitstreams"), and their builds.

use crate::context::Context;
use crate::error::{ClError, Result};
use crate::kernel::KernelInfo;
use crate::platform::Device;
use bytes::Bytes;
use std::sync::Arc;

/// A program.
#[derive(Debug)]
pub struct Program {
    context: Arc<Context>,
    devices: Vec<Arc<Device>>,
    source: Bytes,
}

/// The state of a program's build for one device (`clGetProgramBuildInfo`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BuildInfo {
    /// `cl_build_status`.
    pub status: i32,
    /// Options of the last build.
    pub options: String,
    /// Log of the last build.
    pub log: String,
    /// `cl_program_binary_type`.
    pub binary_type: u32,
}

/// Why a program couldn't be made from binaries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct BinariesError {
    /// The error code.
    pub error: ClError,
    /// `binary_status` per device, as far as they were looked at.
    pub statuses: Vec<i32>,
}

impl Program {
    /// `clCreateProgramWithSource`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for an empty source.
    pub fn with_source(_context: &Arc<Context>, _source: Vec<u8>) -> Result<Arc<Self>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// `clCreateProgramWithBinary`: digests first, bytes only where the manager lacks them (B-8). Also `binary_status`
    /// per device.
    ///
    /// # Errors
    /// `CL_INVALID_BINARY` with the statuses, `CL_INVALID_VALUE`, `CL_INVALID_DEVICE`.
    pub fn with_binaries(
        _context: &Arc<Context>,
        _binaries: &[(Arc<Device>, &[u8])],
    ) -> Result<(Arc<Self>, Vec<i32>), BinariesError> {
        Err(BinariesError { error: ClError::INVALID_OPERATION, statuses: Vec::new() })
    }

    /// Builds for `devices` (empty: all of the program), waiting for the end.
    ///
    /// # Errors
    /// `CL_BUILD_PROGRAM_FAILURE` with the log in [`Self::build_info`], and the other codes of `clBuildProgram`.
    pub fn build(&self, _devices: &[Arc<Device>], _options: &str) -> Result<()> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Its context.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Its devices.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// Its source; empty when it was made from binaries.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// The state of the build for `device`; `None` if the program isn't for it.
    pub fn build_info(&self, _device: &Arc<Device>) -> Option<BuildInfo> {
        None
    }

    /// `CL_PROGRAM_BINARIES`: one per device, in order.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM_EXECUTABLE` before a build.
    pub fn binaries(&self) -> Result<Vec<Bytes>> {
        Err(ClError::INVALID_OPERATION)
    }

    /// Its kernels; `None` before a successful build.
    pub fn kernel_infos(&self) -> Option<Vec<Arc<KernelInfo>>> {
        None
    }
}
