//! Programs, and their builds.

mod binaries;
mod includes;

pub use binaries::{BinariesError, DigestError};

use crate::base::sync::lock;
use crate::cl;
use crate::error::{ClError, Result};
use crate::objects::context::Context;
use crate::objects::kernel_info::KernelInfo;
use crate::objects::platform::Device;
use crate::printed;
use crate::session::check_status;
use bytes::Bytes;
use fpga_protocol::limits::MAX_SOURCE_BYTES;
use fpga_protocol::v1::{self, call::Method, reply};
use std::sync::{Arc, Mutex};

/// A program.
#[derive(Debug)]
pub struct Program {
    id: u64,
    context: Arc<Context>,
    devices: Vec<Arc<Device>>,
    source: Bytes,
    /// Code in an intermediate language; empty if the program was made from something else.
    il: Bytes,
    build: Mutex<Build>,
}

#[derive(Debug)]
struct Build {
    /// One entry for each device of the program.
    devices: Vec<BuildInfo>,
    kernels: Option<Vec<Arc<KernelInfo>>>,
    /// Number of kernel objects; while there are any, the program can't be rebuilt.
    attached: usize,
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
    /// `CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE`.
    pub global_variable_bytes: u64,
}

impl Program {
    /// `clCreateProgramWithSource`.
    ///
    /// # Errors
    /// `CL_OUT_OF_RESOURCES` for a source of more than [`MAX_SOURCE_BYTES`], `CL_DEVICE_NOT_AVAILABLE` if the
    /// manager is gone.
    pub fn with_source(context: &Arc<Context>, source: Vec<u8>) -> Result<Arc<Self>> {
        if source.len() > MAX_SOURCE_BYTES {
            return Err(ClError::OUT_OF_RESOURCES);
        }
        let session = context.session();
        let id = session.new_id();
        let source = Bytes::from(source);
        // Data has at least one byte, and an empty source means the same as an empty line.
        let sent = if source.is_empty() { Bytes::from_static(b"\n") } else { source.clone() };
        session.cast(Method::CreateProgramWithSource(v1::CreateProgramWithSource {
            program: id,
            context: context.id(),
            prints: printed::may_print_source(&source),
            source: Some(session.data(sent)),
        }))?;
        Ok(Arc::new(Self::new(id, context, context.devices().to_vec(), source)))
    }

    /// `clCreateProgramWithIL`.
    ///
    /// # Errors
    /// `CL_INVALID_VALUE` for empty code, `CL_OUT_OF_RESOURCES` for more than [`MAX_SOURCE_BYTES`], and the errors of
    /// the manager's runtime.
    pub fn with_il(context: &Arc<Context>, il: Vec<u8>) -> Result<Arc<Self>> {
        if il.is_empty() {
            return Err(ClError::INVALID_VALUE);
        }
        if il.len() > MAX_SOURCE_BYTES {
            return Err(ClError::OUT_OF_RESOURCES);
        }
        let session = context.session();
        let id = session.new_id();
        let mut program = Self::new(id, context, context.devices().to_vec(), Bytes::new());
        program.il = Bytes::from(il);
        let il = Some(session.data(program.il.clone()));
        let prints = printed::may_print(&program.il);
        let create = v1::CreateProgramWithIl { program: id, context: context.id(), il, prints };
        check_status(session.call(Method::CreateProgramWithIl(create))?.status)?;
        Ok(Arc::new(program))
    }

    /// `clSetProgramSpecializationConstant`.
    ///
    /// # Errors
    /// `CL_INVALID_PROGRAM` if the program was not made from an intermediate language, and the errors of the
    /// manager's runtime.
    pub fn set_constant(&self, id: u32, value: &[u8]) -> Result<()> {
        if self.il.is_empty() {
            return Err(ClError::INVALID_PROGRAM);
        }
        let value = Bytes::copy_from_slice(value);
        let set = v1::SetSpecializationConstant { program: self.id, id, value };
        check_status(self.context.session().call(Method::SetSpecializationConstant(set))?.status)
    }

    /// `clCreateProgramWithBuiltInKernels`; `names` are separated by semicolons.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` if a device is not in the context, `CL_INVALID_VALUE` for a name that a device doesn't
    /// have, and the errors of the manager's runtime.
    pub fn with_built_in_kernels(
        context: &Arc<Context>,
        devices: &[Arc<Device>],
        names: &str,
    ) -> Result<Arc<Self>> {
        if !devices.iter().all(|device| context.has(device)) {
            return Err(ClError::INVALID_DEVICE);
        }
        let session = context.session();
        let program = Arc::new(Self::new(session.new_id(), context, devices.to_vec(), Bytes::new()));
        let create = v1::CreateProgramWithBuiltInKernels {
            program: program.id,
            context: context.id(),
            devices: ids(devices),
            names: names.to_owned(),
        };
        program.built(session.call(Method::CreateProgramWithBuiltInKernels(create))?, "")?;
        let mut build = lock(&program.build);
        // Without any of the kernels the program has no executable.
        build.kernels = build.kernels.take().filter(|kernels| !kernels.is_empty());
        drop(build);
        Ok(program)
    }

    fn new(id: u64, context: &Arc<Context>, devices: Vec<Arc<Device>>, source: Bytes) -> Self {
        let not_built = BuildInfo {
            status: cl::BUILD_NONE,
            options: String::new(),
            log: String::new(),
            binary_type: 0,
            global_variable_bytes: 0,
        };
        let build = Build { devices: vec![not_built; devices.len()], kernels: None, attached: 0 };
        let il = Bytes::new();
        Self { id, context: Arc::clone(context), devices, source, il, build: Mutex::new(build) }
    }

    /// Builds for `devices` (if empty, for all devices of the program) and waits for the end.
    ///
    /// # Errors
    /// `CL_BUILD_PROGRAM_FAILURE` with the log in [`Self::build_info`], `CL_INVALID_OPERATION` while kernels of the
    /// program exist, and the other codes of `clBuildProgram`.
    pub fn build(&self, devices: &[Arc<Device>], options: &str) -> Result<()> {
        if !devices.iter().all(|device| self.position(device).is_some()) {
            return Err(ClError::INVALID_DEVICE);
        }
        let built_for = if devices.is_empty() { &self.devices } else { devices };
        if lock(&self.build).attached > 0 {
            return Err(ClError::INVALID_OPERATION);
        }
        let reply = self.context.session().call(Method::BuildProgram(v1::BuildProgram {
            program: self.id,
            devices: ids(built_for),
            options: options.to_owned(),
            includes: includes::of(std::iter::once(self.source()), options),
        }))?;
        self.built(reply, options)
    }

    /// `clCompileProgram`: compiles without linking and waits for the end. `headers` are programs with the names by
    /// which the source includes them.
    ///
    /// # Errors
    /// `CL_COMPILE_PROGRAM_FAILURE` with the log in [`Self::build_info`], and the other codes of `clCompileProgram`.
    pub fn compile(
        &self,
        devices: &[Arc<Device>],
        options: &str,
        headers: &[(String, Arc<Self>)],
    ) -> Result<()> {
        if !devices.iter().all(|device| self.position(device).is_some()) {
            return Err(ClError::INVALID_DEVICE);
        }
        if headers.iter().any(|(_, program)| !Arc::ptr_eq(&program.context, &self.context)) {
            return Err(ClError::INVALID_PROGRAM);
        }
        // CL_INVALID_OPERATION if program has no source, or there are kernel objects attached to it.
        if !self.is_compilable() || lock(&self.build).attached > 0 {
            return Err(ClError::INVALID_OPERATION);
        }
        let compiled_for = if devices.is_empty() { &self.devices } else { devices };
        let header =
            |(name, program): &(String, Arc<Self>)| v1::Header { name: name.clone(), program: program.id };
        let sources = std::iter::once(self.source()).chain(headers.iter().map(|(_, header)| header.source()));
        let reply = self.context.session().call(Method::CompileProgram(v1::CompileProgram {
            program: self.id,
            devices: ids(compiled_for),
            options: options.to_owned(),
            includes: includes::of(sources, options),
            headers: headers.iter().map(header).collect(),
        }))?;
        self.built(reply, options)?;
        lock(&self.build).kernels = None;
        Ok(())
    }

    /// A program for one call of [`Self::link`], for `devices` or, if empty, for all devices of the context.
    ///
    /// # Errors
    /// `CL_INVALID_DEVICE` if a device is not in the context.
    pub fn to_link(context: &Arc<Context>, devices: &[Arc<Device>]) -> Result<Arc<Self>> {
        if !devices.iter().all(|device| context.has(device)) {
            return Err(ClError::INVALID_DEVICE);
        }
        let devices = if devices.is_empty() { context.devices() } else { devices };
        let id = context.session().new_id();
        Ok(Arc::new(Self::new(id, context, devices.to_vec(), Bytes::new())))
    }

    /// `clLinkProgram`: links and waits for the end. The second value is whether there is a program; a failed link
    /// may leave one with a log.
    ///
    /// # Errors
    /// None. The status is a value, since a failed link may come with a program.
    pub fn link(&self, options: &str, programs: &[Arc<Self>]) -> (Result<()>, bool) {
        if programs.iter().any(|program| !Arc::ptr_eq(&program.context, &self.context)) {
            return (Err(ClError::INVALID_PROGRAM), false);
        }
        let reply = self.context.session().call(Method::LinkProgram(v1::LinkProgram {
            program: self.id,
            context: self.context.id(),
            devices: ids(&self.devices),
            options: options.to_owned(),
            programs: programs.iter().map(|program| program.id).collect(),
        }));
        let reply = match reply {
            Ok(reply) => reply,
            Err(error) => return (Err(error), false),
        };
        let made = matches!(&reply.result, Some(reply::Result::Build(result)) if !result.devices.is_empty());
        (self.built(reply, options), made)
    }

    /// Stores the result of a build, compilation or link.
    fn built(&self, reply: v1::Reply, options: &str) -> Result<()> {
        let mut build = lock(&self.build);
        let result = match reply.result {
            Some(reply::Result::Build(result)) => result,
            _ => v1::BuildResult::default(),
        };
        for (its, info) in self.devices.iter().zip(&mut build.devices) {
            if let Some(built) = result.devices.iter().find(|built| built.device == its.id()) {
                info.status = built.status;
                info.log.clone_from(&built.log);
                info.binary_type = built.binary_type;
                info.global_variable_bytes = built.global_variable_bytes;
                options.clone_into(&mut info.options);
            }
        }
        if reply.status == 0 {
            let kernels = result.kernels.into_iter().map(KernelInfo::new).map(Arc::new);
            build.kernels = Some(kernels.collect());
        } else {
            build.kernels = None;
        }
        check_status(reply.status)
    }

    /// The context of the program.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// The devices of the program.
    pub fn devices(&self) -> &[Arc<Device>] {
        &self.devices
    }

    /// The source; empty if the program was not made from source.
    pub fn source(&self) -> &[u8] {
        &self.source
    }

    /// The state of the build for `device`; `None` if `device` is not a device of the program.
    pub fn build_info(&self, device: &Arc<Device>) -> Option<BuildInfo> {
        lock(&self.build).devices.get(self.position(device)?).cloned()
    }

    /// Whether the program was made from source or from an intermediate language.
    pub fn is_compilable(&self) -> bool {
        !self.source.is_empty() || !self.il.is_empty()
    }

    /// The code in an intermediate language; empty if the program was made from something else.
    pub fn il(&self) -> &[u8] {
        &self.il
    }

    /// Properties of the program's kernels; `None` before a successful build.
    pub fn kernel_infos(&self) -> Option<Vec<Arc<KernelInfo>>> {
        lock(&self.build).kernels.clone()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether work-groups may differ in size. In OpenCL C 2.0 and later they may, unless the options contain
    /// `-cl-uniform-work-group-size`. For a program without source the answer is unknown, hence true.
    pub(crate) fn may_have_partial_groups(&self, device: &Device) -> bool {
        let build = lock(&self.build);
        let info = self.position(device).and_then(|position| build.devices.get(position));
        let options = info.map_or("", |info| &info.options);
        if options.split_whitespace().any(|option| option == "-cl-uniform-work-group-size") {
            return false;
        }
        self.source.is_empty()
            || ["-cl-std=CL2", "-cl-std=CL3", "-cl-std=CLC++"].iter().any(|std| options.contains(std))
    }

    /// Properties of the kernel `name`. The kernel counts as attached until [`Self::detach_kernel`].
    pub(crate) fn attach_kernel(&self, name: &str) -> Result<Arc<KernelInfo>> {
        self.context.session().check(ClError::OUT_OF_RESOURCES)?;
        let mut build = lock(&self.build);
        let kernels = build.kernels.as_ref().ok_or(ClError::INVALID_PROGRAM_EXECUTABLE)?;
        let info = kernels.iter().find(|kernel| kernel.name == name);
        let info = info.cloned().ok_or(ClError::INVALID_KERNEL_NAME)?;
        build.attached += 1;
        Ok(info)
    }

    pub(crate) fn detach_kernel(&self) {
        lock(&self.build).attached -= 1;
    }

    fn position(&self, device: &Device) -> Option<usize> {
        self.devices.iter().position(|its| its.is(device))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.context.session().release(self.id);
    }
}

fn ids(devices: &[Arc<Device>]) -> Vec<u64> {
    devices.iter().map(|device| device.id()).collect()
}
