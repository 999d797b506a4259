//! Programs from binaries: the client sends digests, the gate decides, and the client sends the bytes that
//! the manager lacks. Also the binaries of programs that were built.

use super::{Answered, CallError, Calls, Outcome, reply};
use crate::gate::{Asked, ReconfigurationRefusal};
use crate::metrics::{DataPath, Direction};
use crate::objects::Object;
use crate::programs::{Program, digest};
use crate::quotas::Resource;
use crate::store::{Digested, StoreError};
use crate::transfers::{TransferError, join};
use bytes::Bytes;
use fpga_core::bitstream::Digest;
use fpga_protocol::v1;
use fpga_protocol::v1::reply::Result as Answer;
use fpga_vendor::{ClError, ClResult};
use opencl_sys::CL_OUT_OF_RESOURCES;
use std::sync::Arc;

/// A program that waits for the gate's decision.
#[derive(Debug)]
pub struct Waiting {
    call: u64,
    id: u64,
    program: Arc<Program>,
}

/// A program whose binaries are complete.
#[derive(Debug)]
pub struct ProgramLoad {
    call: u64,
    /// Id of the object that becomes the program; `None` if the program is an object already.
    id: Option<u64>,
    program: Arc<Program>,
    binaries: Vec<Digested>,
}

/// A program that the vendor has made or refused.
#[derive(Debug)]
pub struct LoadedProgram {
    load: ProgramLoad,
    status: ClResult<()>,
    binary_status: Vec<i32>,
}

impl ProgramLoad {
    /// Id of the call.
    #[must_use]
    pub fn call(&self) -> u64 {
        self.call
    }

    /// Digests of the program's binaries.
    #[must_use]
    pub fn images(&self) -> &[Digest] {
        self.program.digests()
    }

    /// Makes the vendor's program, on the calling thread. It loads the board, which may take seconds.
    #[must_use]
    pub fn run(self) -> LoadedProgram {
        let bytes: Vec<Bytes> = self.binaries.iter().map(|binary| binary.bytes().clone()).collect();
        let (status, binary_status) = self.program.load(&bytes);
        LoadedProgram { load: self, status, binary_status }
    }
}

impl LoadedProgram {
    /// Digests of the program's binaries.
    #[must_use]
    pub fn images(&self) -> &[Digest] {
        self.load.images()
    }

    /// The outcome of the load.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn outcome(&self) -> ClResult<()> {
        self.status
    }
}

/// The result of the gate's decision.
#[derive(Debug)]
pub enum Decided {
    /// The reply to the call.
    Reply(v1::Reply),
    /// The program is ready to be loaded.
    Load(Box<ProgramLoad>),
}

/// The binaries of a program: all, or the digests of those that are missing.
enum Complete {
    All(Vec<Digested>),
    Missing(v1::BinariesResult),
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
        let too_long = create.binaries.iter().any(|binary| binary.length > limit);
        if create.binaries.iter().any(|binary| binary.length > limit) {
            self.account.upload_refused();
        }
        let done = |(status, result)| Ok(Outcome::Done(reply(call, status, result)));
        let program = match program {
            Ok(_) if too_long => {
                return done(self.keep(create.program, Err(ClError::OUT_OF_RESOURCES))?);
            }
            Ok(program) => program,
            Err(error) => return done(self.keep(create.program, Err(error))?),
        };
        // The object counts as failed until the program is complete.
        self.objects.add(create.program, Object::Failed(CL_OUT_OF_RESOURCES))?;
        let asked = self.asker.ask(program.digests());
        let waiting = Waiting { call, id: create.program, program };
        match asked {
            Asked::Decided(decided) => Ok(match self.decided(waiting, decided) {
                Decided::Reply(reply) => Outcome::Done(reply),
                Decided::Load(load) => Outcome::Load(load),
            }),
            Asked::Later(question) => Ok(Outcome::Ask(Box::new(waiting), question)),
        }
    }

    /// Continues a call after the gate's decision on the program's bitstreams.
    pub fn decided(&mut self, waiting: Waiting, decided: Result<(), ReconfigurationRefusal>) -> Decided {
        let Waiting { call, id, program } = waiting;
        if let Err(refusal) = decided {
            let binary_status = vec![CL_OUT_OF_RESOURCES; program.devices.len()];
            let result =
                v1::BinariesResult { binary_status, refusal: refusal.to_string(), ..Default::default() };
            let status = Err(ClError::OUT_OF_RESOURCES);
            return Decided::Reply(reply(call, status, Some(Answer::Binaries(result))));
        }
        match self.complete(&program) {
            Complete::All(binaries) => {
                Decided::Load(Box::new(ProgramLoad { call, id: Some(id), program, binaries }))
            }
            Complete::Missing(missing) => {
                self.objects.settle(id, Object::Program(program));
                Decided::Reply(reply(call, Ok(()), Some(Answer::Binaries(missing))))
            }
        }
    }

    /// Takes a program that was made, and returns the reply to its call.
    pub fn loaded(&mut self, loaded: LoadedProgram) -> v1::Reply {
        let LoadedProgram { load: ProgramLoad { call, id, program, binaries }, status, binary_status } =
            loaded;
        // Kept for the next time that the board is loaded with them. A board that is reconfigured as a whole
        // keeps bytes of its own.
        program.keep(if self.config.board.is_whole() || status.is_err() { Vec::new() } else { binaries });
        let binary_types = program.binary_types();
        if let Some(id) = id {
            // A program whose binaries are refused fails at every use.
            let settled = match status {
                Ok(()) => Object::Program(program),
                Err(error) => Object::Failed(error.0),
            };
            self.objects.settle(id, settled);
        }
        let result = v1::BinariesResult { binary_status, binary_types, ..Default::default() };
        reply(call, status, Some(Answer::Binaries(result)))
    }

    pub(super) fn provide_binary(
        &mut self,
        call: u64,
        provide: v1::ProvideBinary,
    ) -> Result<Outcome, CallError> {
        let done = |(status, result)| Ok(Outcome::Done(reply(call, status, result)));
        let (bytes, _hold) = match self.transfers.take(provide.data) {
            Ok(data) => (join(data.pieces), data.hold),
            Err(TransferError::OverQuota) => return done((Err(ClError::OUT_OF_RESOURCES), None)),
            Err(error) => return Err(error.into()),
        };
        self.config.metrics.count_bytes(Direction::Received, DataPath::Messages, bytes.len() as u64);
        let program = match self.objects.program(provide.program) {
            Ok(program) => program,
            Err(error) => return done((Err(error), None)),
        };
        if program.is_loaded() {
            return done((Err(ClError::INVALID_OPERATION), None));
        }
        // Only binaries of this program are stored.
        let announced = digest(&provide.digest).filter(|digest| program.digests().contains(digest));
        let stored = match announced {
            Some(announced) => self.store(&program, announced, &bytes),
            None => Err(ClError::INVALID_BINARY),
        };
        if let Err(error) = stored {
            return done((Err(error), None));
        }
        match self.complete(&program) {
            Complete::All(binaries) => {
                Ok(Outcome::Load(Box::new(ProgramLoad { call, id: None, program, binaries })))
            }
            Complete::Missing(missing) => done((Ok(()), Some(Answer::Binaries(missing)))),
        }
    }

    fn store(&self, program: &Program, announced: Digest, bytes: &Bytes) -> ClResult<()> {
        let stored = || {
            self.config.store.fits(bytes.len() as u64)?;
            // Copied: slices would keep the messages in memory.
            let bitstream = Digested::announced_as(announced, Bytes::copy_from_slice(bytes))?;
            self.config.store.insert_as(bitstream.clone(), &self.asker.tenant)?;
            Ok(bitstream)
        };
        let bitstream = stored().map_err(|error| {
            tracing::warn!(%announced, %error, "A bitstream can't be stored");
            match error {
                StoreError::OtherBytes { .. } => ClError::INVALID_BINARY,
                _ => ClError::OUT_OF_RESOURCES,
            }
        })?;
        program.keep_also(bitstream);
        Ok(())
    }

    /// The program's binaries if the manager has all of them, otherwise the missing digests.
    fn complete(&self, program: &Program) -> Complete {
        let mut missing: Vec<Bytes> = Vec::new();
        let mut present = Vec::new();
        for digest in program.digests() {
            match program.kept(digest).or_else(|| self.config.store.get_for(&self.asker.tenant, digest)) {
                Some(binary) => present.push(binary),
                None if missing.iter().any(|other| other.as_ref() == digest.as_bytes()) => {}
                None => missing.push(Bytes::copy_from_slice(digest.as_bytes())),
            }
        }
        if !missing.is_empty() {
            // The program keeps them, since the store may evict them before the others arrive.
            program.keep(present);
            return Complete::Missing(v1::BinariesResult { missing, ..v1::BinariesResult::default() });
        }
        Complete::All(present)
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
