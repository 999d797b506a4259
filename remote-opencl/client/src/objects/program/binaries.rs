//! Programs from binaries (bitstreams), and the binaries of programs.

use super::Program;
use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::objects::context::Context;
use crate::objects::platform::Device;
use crate::printed;
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

/// A program couldn't be made from a digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// The manager does not have the bitstream.
    #[error("the manager does not have the bitstream")]
    Missing,
    /// The manager has the bitstream, and the program couldn't be made.
    #[error(transparent)]
    Binaries(#[from] BinariesError),
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
        let prints = binaries.iter().any(|(_, bytes)| printed::may_print(bytes));
        let mut result = send_digests(id, context, refs.collect(), prints)?;
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
        Self::of_binaries(id, context, devices, result)
    }

    /// A program of the bitstream with this SHA-256, which the manager must have: no bytes are sent.
    ///
    /// # Errors
    /// [`DigestError::Missing`] if the manager lacks the bitstream, else the errors of [`Self::with_binaries`].
    pub fn with_digest(
        context: &Arc<Context>,
        device: &Arc<Device>,
        digest: [u8; 32],
    ) -> Result<Arc<Self>, DigestError> {
        if !context.has(device) {
            return Err(BinariesError::from(ClError::INVALID_DEVICE).into());
        }
        let id = context.session().new_id();
        let digest = Bytes::copy_from_slice(&digest);
        // Nobody here knows the length, which the manager needs only for bytes that it lacks.
        let binary = v1::BinaryRef { device: device.id(), digest, length: 0 };
        let result = send_digests(id, context, vec![binary], false)?;
        if !result.missing.is_empty() {
            // The manager keeps a program that waits for its bytes.
            context.session().release(id);
            return Err(DigestError::Missing);
        }
        let (program, _) = Self::of_binaries(id, context, vec![Arc::clone(device)], result)?;
        Ok(program)
    }

    /// The program whose binaries the manager has all got, and `binary_status` for each device.
    fn of_binaries(
        id: u64,
        context: &Arc<Context>,
        devices: Vec<Arc<Device>>,
        result: v1::BinariesResult,
    ) -> Result<(Arc<Self>, Vec<i32>), BinariesError> {
        let mut statuses = result.binary_status;
        statuses.resize(devices.len(), 0);
        let program = Arc::new(Self::new(id, context, devices, Bytes::new()));
        for (info, binary_type) in lock(&program.build).devices.iter_mut().zip(result.binary_types) {
            info.binary_type = binary_type;
        }
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

fn send_digests(
    program: u64,
    context: &Arc<Context>,
    binaries: Vec<v1::BinaryRef>,
    prints: bool,
) -> Result<v1::BinariesResult, BinariesError> {
    let create = v1::CreateProgramWithBinary { program, context: context.id(), binaries, prints };
    binaries_result(context.session().call(Method::CreateProgramWithBinary(create))?)
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
