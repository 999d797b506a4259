//! Builds, compilations and links: checked in the order of arrival, and run on threads of their own.

use super::{Answered, CallError, Calls};
use crate::context::Context;
use crate::gate::Asker;
use crate::includes::{Laid, LayOutError, SessionIncludes};
use crate::inventory::Device;
use crate::objects::Object;
use crate::programs::{Options, Program, Sources};
use crate::quotas::Resource;
use crate::shorten::shorten;
use fpga_protocol::v1;
use fpga_protocol::v1::reply::Result as Answer;
use fpga_vendor::ClResult;
use std::sync::Arc;

/// Most bytes of the build logs in one reply, for all devices together. A reply has to fit a message
/// ([`fpga_protocol::limits::MAX_MESSAGE_BYTES`]).
const MAX_LOG_BYTES: usize = 1 << 20;

/// A build to run.
#[derive(Debug)]
pub struct Build {
    id: u64,
    program: Arc<Program>,
    options: String,
    /// The client's files that the source may include.
    includes: Option<v1::Includes>,
    step: Step,
    /// Asks the gate, if building makes a bitstream.
    asker: Asker,
}

/// The part of a build to run.
#[derive(Debug)]
enum Step {
    /// Compile and link, for these devices.
    Build(Vec<Device>),
    /// Compile only, for these devices, with these headers.
    Compile(Vec<Device>, Vec<(String, Arc<Program>)>),
    /// Link these programs.
    Link(Vec<Arc<Program>>),
}

impl Step {
    /// The standard's error code for invalid options of this step.
    fn invalid(&self) -> i32 {
        match self {
            Self::Build(_) => opencl_sys::CL_INVALID_BUILD_OPTIONS,
            Self::Compile(..) => opencl_sys::CL_INVALID_COMPILER_OPTIONS,
            Self::Link(_) => opencl_sys::CL_INVALID_LINKER_OPTIONS,
        }
    }

    /// The standard's error code for the failure of this step.
    fn failure(&self) -> i32 {
        match self {
            Self::Build(_) => opencl_sys::CL_BUILD_PROGRAM_FAILURE,
            Self::Compile(..) => opencl_sys::CL_COMPILE_PROGRAM_FAILURE,
            Self::Link(_) => opencl_sys::CL_LINK_PROGRAM_FAILURE,
        }
    }
}

impl Calls<'_> {
    /// Makes a program from source or from an intermediate language.
    pub(super) fn create_program(
        &mut self,
        id: u64,
        context: u64,
        code: Option<v1::Data>,
        make: impl FnOnce(Arc<Context>, &[u8], Sources) -> ClResult<Program>,
    ) -> Result<Answered, CallError> {
        let made = self.initial(code)?.and_then(|code| {
            let context = self.objects.context(context)?;
            let charge = self.account.charge(Resource::Programs, 1)?;
            let program = make(context, code.bytes().unwrap_or_default(), self.config.sources)?;
            Ok(Object::Program(Arc::new(program.charged(charge))))
        });
        self.keep(id, made)
    }

    pub(super) fn build(&self, id: u64, build: v1::BuildProgram) -> ClResult<Build> {
        let program = self.objects.program(build.program)?;
        program.vendor()?;
        let devices = program.chosen(&build.devices)?;
        Ok(Build {
            id,
            program,
            options: build.options,
            includes: build.includes,
            step: Step::Build(devices),
            asker: self.asker.clone(),
        })
    }

    pub(super) fn compile(&self, id: u64, compile: v1::CompileProgram) -> ClResult<Build> {
        let program = self.objects.program(compile.program)?;
        program.vendor()?;
        let devices = program.chosen(&compile.devices)?;
        let mut headers = Vec::new();
        for header in compile.headers {
            headers.push((header.name, self.objects.program(header.program)?));
        }
        let (options, asker) = (compile.options, self.asker.clone());
        let includes = compile.includes;
        Ok(Build { id, program, options, includes, step: Step::Compile(devices, headers), asker })
    }

    pub(super) fn link(&mut self, id: u64, link: v1::LinkProgram) -> Result<ClResult<Build>, CallError> {
        let programs = link.programs.iter().map(|id| self.objects.program(*id)).collect::<ClResult<Vec<_>>>();
        let made = self.objects.context(link.context).and_then(|context| {
            let programs = programs?;
            let charge = self.account.charge(Resource::Programs, 1)?;
            let program = Program::to_link(context, &link.devices, &programs, self.config.sources)?;
            let program = program.charged(charge);
            Ok((Arc::new(program), programs))
        });
        match made {
            Ok((program, programs)) => {
                self.objects.add(link.program, Object::Program(program.clone()))?;
                let (options, asker) = (link.options, self.asker.clone());
                let step = Step::Link(programs);
                Ok(Ok(Build { id, program, options, includes: None, step, asker }))
            }
            Err(error) => {
                self.objects.add(link.program, Object::Failed(error.0))?;
                Ok(Err(error))
            }
        }
    }
}

impl Build {
    /// Writes the client's files that the source may include to disk.
    ///
    /// # Errors
    /// [`LayOutError`]; the build must not run then.
    pub fn lay_out(&self, place: &SessionIncludes) -> Result<Option<Arc<Laid>>, LayOutError> {
        let laid = self.includes.as_ref().map(|includes| place.lay_out(includes)).transpose();
        laid.map(Option::flatten)
    }

    /// Runs the build on the calling thread.
    #[must_use]
    pub fn run(self, laid: Result<Option<Arc<Laid>>, LayOutError>) -> v1::Reply {
        let laid = match laid {
            Ok(laid) => laid,
            Err(error) => {
                tracing::debug!(%error, "A build is refused");
                return v1::Reply { id: self.id, status: self.step.invalid(), result: None };
            }
        };
        let mut reply = self.run_with(laid.as_ref());
        if let Some(Answer::Build(result)) = &mut reply.result {
            if let Some(laid) = &laid {
                for device in &mut result.devices {
                    device.log = laid.as_the_client_knows_them(&device.log);
                }
            }
            shorten_logs(&mut result.devices);
        }
        reply
    }

    fn run_with(&self, laid: Option<&Arc<Laid>>) -> v1::Reply {
        let folder = self.includes.as_ref().map_or("", |includes| &includes.folder);
        let options = Options::new(&self.options, laid.map(|laid| (laid, folder)));
        let becomes = match &self.step {
            Step::Build(devices) => self.program.bitstreams_of_build(devices, &options),
            Step::Link(_) => self.program.bitstreams_of_build(&self.program.devices, &options),
            Step::Compile(..) => Vec::new(),
        };
        let (status, result) = match &self.step {
            step if let Err(refusal) = self.asker.ask_for_source(&becomes) => {
                self.program.refused(step.failure(), &refusal)
            }
            Step::Build(devices) => self.program.build(devices, &options),
            Step::Compile(devices, headers) => self.program.compile(devices, &options, headers),
            Step::Link(programs) => self.program.link(&options, programs),
        };
        v1::Reply { id: self.id, status, result: Some(Answer::Build(result)) }
    }
}

/// Shortens the logs so that together they have no more than about [`MAX_LOG_BYTES`].
fn shorten_logs(devices: &mut [v1::DeviceBuild]) {
    let max_bytes = MAX_LOG_BYTES / devices.len().max(1);
    for device in devices {
        device.log = shorten(std::mem::take(&mut device.log), max_bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fpga_protocol::limits::MAX_MESSAGE_BYTES;
    use prost::Message as _;

    #[test]
    fn the_reply_to_a_build_with_long_logs_fits_a_message() {
        let device = v1::DeviceBuild { log: "warning\n".repeat(1 << 18), ..v1::DeviceBuild::default() };
        let mut result = v1::BuildResult { devices: vec![device; 8], ..v1::BuildResult::default() };
        assert!(result.encoded_len() > MAX_MESSAGE_BYTES);
        shorten_logs(&mut result.devices);
        assert!(result.encoded_len() < MAX_MESSAGE_BYTES);
        assert!(result.devices.iter().all(|device| device.log.ends_with("bytes were left out]")));
    }
}
