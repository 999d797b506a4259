//! Programs from binaries (bitstreams), and the binaries of programs.

use super::Program;
use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::objects::context::Context;
use crate::objects::platform::Device;
use crate::session::check_status;
use bytes::Bytes;
use fpga_protocol::v1::{self, call::Method, reply};
use sha2::{Digest, Sha256};
use std::sync::Arc;

/// A program couldn't be made from binaries.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct BinariesError {
    /// The error code.
    pub error: ClError,
    /// `binary_status` for each device; empty if the failure came before the binaries were examined.
    pub statuses: Vec<i32>,
}

impl From<ClError> for BinariesError {
    fn from(error: ClError) -> Self {
        Self { error, statuses: Vec::new() }
    }
}

impl Program {
    /// `clCreateProgramWithBinary`: sends digests first, and bytes only where the manager lacks them (B-8). Also
    /// returns `binary_status` for each device.
    ///
    /// # Errors
    /// `CL_INVALID_BINARY` with the statuses, `CL_INVALID_VALUE` for no binaries or an empty one,
    /// `CL_INVALID_DEVICE` for a device outside the context, and the errors of the manager's runtime.
    pub fn with_binaries(
        context: &Arc<Context>,
        binaries: &[(Arc<Device>, &[u8])],
    ) -> Result<(Arc<Self>, Vec<i32>), BinariesError> {
        if binaries.is_empty() {
            return Err(ClError::INVALID_VALUE.into());
        }
        if !binaries.iter().all(|(device, _)| context.has(device)) {
            return Err(ClError::INVALID_DEVICE.into());
        }
        if binaries.iter().any(|(_, bytes)| bytes.is_empty()) {
            let statuses = binaries.iter().map(|(_, bytes)| match bytes.len() {
                0 => ClError::INVALID_VALUE.0,
                _ => 0,
            });
            return Err(BinariesError { error: ClError::INVALID_VALUE, statuses: statuses.collect() });
        }
        let session = context.session();
        let id = session.new_id();
        let digests: Vec<_> = binaries.iter().map(|(_, bytes)| digest(bytes)).collect();
        let refs = binaries.iter().zip(&digests).map(|((device, bytes), digest)| v1::BinaryRef {
            device: device.id(),
            digest: digest.clone(),
            length: bytes.len() as u64,
        });
        let create =
            v1::CreateProgramWithBinary { program: id, context: context.id(), binaries: refs.collect() };
        let reply = session.call(Method::CreateProgramWithBinary(create))?;
        let mut result = binaries_result(reply)?;
        let mut missing = std::mem::take(&mut result.missing);
        missing.sort();
        missing.dedup();
        for missing in missing {
            let index = digests.iter().position(|digest| *digest == missing);
            let (_, bytes) = index.and_then(|at| binaries.get(at)).ok_or(ClError::OUT_OF_RESOURCES)?;
            let data = Some(session.data(Bytes::copy_from_slice(bytes)));
            let provide = v1::ProvideBinary { program: id, digest: missing, data };
            result = binaries_result(session.call(Method::ProvideBinary(provide))?)?;
        }
        if !result.missing.is_empty() {
            return Err(ClError::OUT_OF_RESOURCES.into());
        }
        let devices = binaries.iter().map(|(device, _)| Arc::clone(device)).collect();
        let program = Arc::new(Self::new(id, context, devices, Bytes::new()));
        for (info, binary_type) in lock(&program.build).devices.iter_mut().zip(result.binary_types) {
            info.binary_type = binary_type;
        }
        let mut statuses = result.binary_status;
        statuses.resize(binaries.len(), 0);
        if statuses.iter().any(|status| *status != 0) {
            return Err(BinariesError { error: ClError::INVALID_BINARY, statuses });
        }
        Ok((program, statuses))
    }

    /// `CL_PROGRAM_BINARIES`: one binary for each device, in order; empty for a device for which the program isn't
    /// built.
    ///
    /// # Errors
    /// The errors of the manager's runtime.
    pub fn binaries(&self) -> Result<Vec<Bytes>> {
        let session = self.context.session();
        let get = v1::GetProgramBinaries { program: self.id };
        let reply = session.call(Method::GetProgramBinaries(get))?;
        check_status(reply.status)?;
        let Some(reply::Result::ProgramBinaries(result)) = reply.result else {
            return Err(ClError::OUT_OF_RESOURCES);
        };
        result.binaries.into_iter().map(|data| session.take_data(Some(data))).collect()
    }
}

fn digest(bytes: &[u8]) -> Bytes {
    Bytes::copy_from_slice(&Sha256::digest(bytes))
}

fn binaries_result(reply: v1::Reply) -> Result<v1::BinariesResult, BinariesError> {
    let result = match reply.result {
        Some(reply::Result::Binaries(result)) => result,
        _ => v1::BinariesResult::default(),
    };
    match check_status(reply.status) {
        Ok(()) => Ok(result),
        Err(error) => {
            if !result.refusal.is_empty() {
                tracing::warn!(reason = result.refusal, "A device manager refuses a program's bitstreams");
            }
            Err(BinariesError { error, statuses: result.binary_status })
        }
    }
}
