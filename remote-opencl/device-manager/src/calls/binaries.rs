//! Programs from binaries: first their digests, then the gate's word, then what is missing of the bytes; and the binaries
//! of programs that were built.

use super::{Answered, CallError, Calls, Outcome, reply};
use crate::budget::HARD_LIMIT;
use crate::gate::{Asked, Refusal};
use crate::metrics::{DataPath, Direction};
use crate::objects::Object;
use crate::programs::{Program, digest};
use crate::quotas::Resource;
use crate::store::StoreError;
use crate::transfers::{TransferError, join};
use crate::vendor::{ClError, ClResult};
use bytes::Bytes;
use fpga_protocol::v1;
use fpga_protocol::v1::reply::Result as Answer;
use opencl_sys::{CL_INVALID_BINARY, CL_INVALID_OPERATION, CL_OUT_OF_RESOURCES};
use std::sync::Arc;

/// A program that waits for the gate.
#[derive(Debug)]
pub struct Waiting {
    call: u64,
    id: u64,
    program: Arc<Program>,
}

impl Calls<'_> {
    pub(super) fn create_program_with_binary(
        &mut self,
        call: u64,
        create: &v1::CreateProgramWithBinary,
    ) -> Result<Outcome, CallError> {
        let context = self.objects.context(create.context);
        let program = context.and_then(|context| {
            let charge = self.account.charge(Resource::Programs, 1)?;
            Ok(Arc::new(Program::with_binaries(context, &create.binaries)?.charged(charge)))
        });
        let limit = self.account.upload_limit();
        let too_long = create.binaries.iter().any(|binary| binary.length > limit.min(HARD_LIMIT));
        if create.binaries.iter().any(|binary| binary.length > limit) {
            self.account.upload_refused();
        }
        let done = |(status, result)| Ok(Outcome::Done(reply(call, status, result)));
        let program = match program {
            Ok(_) if too_long => {
                return done(self.keep(create.program, Err(ClError(CL_OUT_OF_RESOURCES)))?);
            }
            Ok(program) => program,
            Err(error) => return done(self.keep(create.program, Err(error))?),
        };
        // What it is until it is known to be more.
        self.objects.add(create.program, Object::Failed(CL_OUT_OF_RESOURCES))?;
        let asked = self.asker.ask(program.digests());
        let waiting = Waiting { call, id: create.program, program };
        match asked {
            Asked::Decided(decided) => Ok(Outcome::Done(self.decided(waiting, decided))),
            Asked::Later(question) => Ok(Outcome::Ask(Box::new(waiting), question)),
        }
    }

    /// The gate has decided on a program's bitstreams.
    pub fn decided(&mut self, waiting: Waiting, decided: Result<(), Refusal>) -> v1::Reply {
        let Waiting { call, id, program } = waiting;
        if let Err(refusal) = decided {
            let binary_status = vec![CL_OUT_OF_RESOURCES; program.devices.len()];
            let result =
                v1::BinariesResult { binary_status, refusal: refusal.to_string(), ..Default::default() };
            return reply(call, Err(ClError(CL_OUT_OF_RESOURCES)), Some(Answer::Binaries(result)));
        }
        let (status, result) = self.complete(&program);
        // A program whose binaries are refused is none, and says so at every use.
        self.objects.settle(
            id,
            match status {
                Ok(()) => Object::Program(program),
                Err(error) => Object::Failed(error.0),
            },
        );
        reply(call, status, result)
    }

    pub(super) fn provide_binary(&mut self, provide: v1::ProvideBinary) -> Result<Answered, CallError> {
        let bytes = match self.transfers.take(provide.data) {
            Ok(pieces) => join(pieces),
            Err(TransferError::OverQuota) => return Ok((Err(ClError(CL_OUT_OF_RESOURCES)), None)),
            Err(error) => return Err(error.into()),
        };
        self.config.metrics.count_bytes(Direction::Received, DataPath::Messages, bytes.len() as u64);
        let program = match self.objects.program(provide.program) {
            Ok(program) => program,
            Err(error) => return Ok((Err(error), None)),
        };
        if program.is_loaded() {
            return Ok((Err(ClError(CL_INVALID_OPERATION)), None));
        }
        // Only what was asked for is stored.
        let announced = digest(&provide.digest).filter(|digest| program.digests().contains(digest));
        let stored = match announced {
            Some(announced) => self.store(&program, announced, &bytes),
            None => Err(ClError(CL_INVALID_BINARY)),
        };
        Ok(match stored {
            Ok(()) => self.complete(&program),
            Err(error) => (Err(error), None),
        })
    }

    fn store(
        &self,
        program: &Program,
        announced: fpga_core::bitstream::Digest,
        bytes: &Bytes,
    ) -> ClResult<()> {
        // Copied: the pieces would keep the messages that they came in.
        let bytes = Bytes::copy_from_slice(bytes);
        self.config.store.insert_as(announced, bytes.clone(), &self.asker.tenant).map_err(|error| {
            tracing::warn!(%announced, %error, "A bitstream can't be stored");
            match error {
                StoreError::OtherBytes { .. } => ClError(CL_INVALID_BINARY),
                _ => ClError(CL_OUT_OF_RESOURCES),
            }
        })?;
        program.keep_also(announced, bytes);
        Ok(())
    }

    /// Loads the program if all its binaries are here, else says which are missing.
    fn complete(&self, program: &Program) -> Answered {
        let mut missing: Vec<Bytes> = Vec::new();
        let mut present = Vec::new();
        for digest in program.digests() {
            match program.kept(digest).or_else(|| self.config.store.get_for(&self.asker.tenant, digest)) {
                Some(bytes) => present.push((*digest, bytes)),
                None if missing.iter().any(|other| other.as_ref() == digest.as_bytes()) => {}
                None => missing.push(Bytes::copy_from_slice(digest.as_bytes())),
            }
        }
        if !missing.is_empty() {
            // The store may evict them while the others come.
            program.keep(present);
            let result = v1::BinariesResult { missing, ..v1::BinariesResult::default() };
            return (Ok(()), Some(Answer::Binaries(result)));
        }
        let present: Vec<Bytes> = present.into_iter().map(|(_, bytes)| bytes).collect();
        let (status, binary_status) = program.load(&present);
        program.keep(Vec::new());
        let binary_types = program.binary_types();
        (
            status,
            Some(Answer::Binaries(v1::BinariesResult { binary_status, binary_types, ..Default::default() })),
        )
    }

    pub(super) fn binaries(&mut self, program: u64) -> Answered {
        let binaries = self.objects.program(program).and_then(|program| program.vendor()?.binaries());
        match binaries {
            Ok(binaries) => {
                let binaries = binaries.into_iter().map(|bytes| self.outgoing.data(bytes.into())).collect();
                (Ok(()), Some(Answer::ProgramBinaries(v1::ProgramBinaries { binaries })))
            }
            Err(error) => (Err(error), None),
        }
    }
}
