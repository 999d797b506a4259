//! Programs from source or binaries, their builds, and the vendor's descriptions of them.

use crate::api::{call, check};
use crate::handles::{Context, Handle, handle};
use crate::info::{DeviceId, number, query, query_u64, text};
use crate::object::{self, Kind, VendorObject};
use fpga_core::bitstream::Digest;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::{
    CL_PROGRAM_BINARIES, CL_PROGRAM_BINARY_SIZES, CL_PROGRAM_BINARY_TYPE,
    CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE, CL_PROGRAM_BUILD_LOG, CL_PROGRAM_BUILD_STATUS, cl_program,
};
use std::any::Any;
use std::ffi::{CStr, CString};
use std::ptr;
use std::sync::Arc;

/// Maximum size in bytes of a binary from the vendor; a guard against an invalid length.
const MAX_BINARY_BYTES: usize = 1 << 30;

/// What keeps the files on disk that a build includes; dropped when the program can no longer be built again.
pub type Included = Arc<dyn Any + Send + Sync>;

handle! {
    /// A program.
    Program(cl_program) by clReleaseProgram
}

fn create_with_source(context: &VendorObject, source: &[u8]) -> ClResult<cl_program> {
    let mut status = 0;
    let mut text = source.as_ptr().cast();
    let length = source.len();
    // SAFETY: one string of `length` bytes, which the vendor copies.
    let program = unsafe {
        call!(clCreateProgramWithSource(
            context.alive()?,
            1,
            &raw mut text,
            &raw const length,
            &raw mut status
        ))
    };
    check(status).map(|()| program)
}

fn create_with_binaries(
    context: &VendorObject,
    binaries: &[(DeviceId, &[u8])],
    statuses: &mut [i32],
) -> ClResult<cl_program> {
    let devices: Vec<_> = binaries.iter().map(|(device, _)| device.0).collect();
    let lengths: Vec<usize> = binaries.iter().map(|(_, bytes)| bytes.len()).collect();
    let mut pointers: Vec<*const u8> = binaries.iter().map(|(_, bytes)| bytes.as_ptr()).collect();
    let count = u32::try_from(devices.len()).map_err(|_| ClError::INVALID_VALUE)?;
    if statuses.len() != devices.len() {
        return Err(ClError::INVALID_VALUE);
    }
    let mut status = 0;
    // SAFETY: all arrays have `count` entries, and each length is that of its pointer's bytes, which the vendor
    // copies.
    let program = unsafe {
        call!(clCreateProgramWithBinary(
            context.alive()?,
            count,
            devices.as_ptr(),
            lengths.as_ptr(),
            pointers.as_mut_ptr(),
            statuses.as_mut_ptr(),
            &raw mut status
        ))
    };
    check(status).map(|()| program)
}

fn create_with_built_in(context: &VendorObject, devices: &[DeviceId], names: &CStr) -> ClResult<cl_program> {
    let raw: Vec<_> = devices.iter().map(|device| device.0).collect();
    let count = u32::try_from(raw.len()).map_err(|_| ClError::INVALID_VALUE)?;
    let mut status = 0;
    // SAFETY: context and devices are live, and the names end in NUL.
    let program = unsafe {
        call!(clCreateProgramWithBuiltInKernels(
            context.alive()?,
            count,
            raw.as_ptr(),
            names.as_ptr(),
            &raw mut status
        ))
    };
    check(status).map(|()| program)
}

fn build(program: cl_program, devices: &[DeviceId], options: &CStr) -> ClResult<()> {
    let raw: Vec<_> = devices.iter().map(|device| device.0).collect();
    let pointer = if raw.is_empty() { ptr::null() } else { raw.as_ptr() };
    let count = u32::try_from(raw.len()).map_err(|_| ClError::INVALID_VALUE)?;
    // SAFETY: program and devices are live, the options end in NUL, and no callback is passed.
    check(unsafe { call!(clBuildProgram(program, count, pointer, options.as_ptr(), None, ptr::null_mut())) })
}

fn compile(
    program: cl_program,
    devices: &[DeviceId],
    options: &CStr,
    headers: &[(CString, Arc<VendorObject>)],
) -> ClResult<()> {
    let raw: Vec<_> = devices.iter().map(|device| device.0).collect();
    let too_many = |_| ClError::INVALID_VALUE;
    let count = u32::try_from(raw.len()).map_err(too_many)?;
    let header_count = u32::try_from(headers.len()).map_err(too_many)?;
    let programs = headers.iter().map(|(_, program)| program.alive()).collect::<ClResult<Vec<_>>>()?;
    let mut names: Vec<_> = headers.iter().map(|(name, _)| name.as_ptr()).collect();
    // SAFETY: all programs and devices are live, empty lists are NULL, strings end in NUL, and no callback is
    // passed.
    check(unsafe {
        call!(clCompileProgram(
            program,
            count,
            if raw.is_empty() { ptr::null() } else { raw.as_ptr() },
            options.as_ptr(),
            header_count,
            if headers.is_empty() { ptr::null() } else { programs.as_ptr() },
            if headers.is_empty() { ptr::null_mut() } else { names.as_mut_ptr() },
            None,
            ptr::null_mut()
        ))
    })
}

fn link(
    context: &VendorObject,
    devices: &[DeviceId],
    options: &CStr,
    programs: &[Arc<VendorObject>],
) -> ClResult<(i32, cl_program)> {
    let raw: Vec<_> = devices.iter().map(|device| device.0).collect();
    let inputs = programs.iter().map(|program| program.alive()).collect::<ClResult<Vec<_>>>()?;
    let too_many = |_| ClError::INVALID_VALUE;
    let count = u32::try_from(raw.len()).map_err(too_many)?;
    let input_count = u32::try_from(inputs.len()).map_err(too_many)?;
    let mut status = 0;
    // SAFETY: context, programs and devices are live, an empty list of devices is NULL, the options end in NUL, and
    // no callback is passed.
    let program = unsafe {
        call!(clLinkProgram(
            context.alive()?,
            count,
            if raw.is_empty() { ptr::null() } else { raw.as_ptr() },
            options.as_ptr(),
            input_count,
            inputs.as_ptr(),
            None,
            ptr::null_mut(),
            &raw mut status
        ))
    };
    Ok((status, program))
}

impl Program {
    /// Makes a program from source text.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn with_source(context: &Context, source: &[u8]) -> ClResult<Self> {
        let program = Self::own(create_with_source(context.cell(), source)?, opencl_sys::CL_SUCCESS)?;
        if object::is_on() {
            let (of, source) = (context.cell().clone(), source.to_vec());
            object::remember(program.cell(), Kind::Program { images: Vec::new() }, move |_| {
                create_with_source(&of, &source)
            });
        }
        Ok(program)
    }

    /// Makes a program from one binary for each device, which loads the board with the image. `images` are the
    /// digests of the binaries. Returns the program and the vendor's status of each binary.
    pub fn with_binaries(
        context: &Context,
        images: &[Digest],
        binaries: &[(DeviceId, &[u8])],
    ) -> (ClResult<Self>, Vec<i32>) {
        let mut statuses = vec![0; binaries.len()];
        let made = create_with_binaries(context.cell(), binaries, &mut statuses);
        let program = made.and_then(|raw| Self::own(raw, opencl_sys::CL_SUCCESS));
        if let (true, Ok(program)) = (object::is_on(), &program) {
            let of = context.cell().clone();
            let kept: Vec<_> = binaries.iter().map(|(device, bytes)| (*device, bytes.to_vec())).collect();
            let images = images.to_vec();
            object::remember(program.cell(), Kind::Program { images }, move |_| {
                let binaries: Vec<_> =
                    kept.iter().map(|(device, bytes)| (*device, bytes.as_slice())).collect();
                create_with_binaries(&of, &binaries, &mut vec![0; binaries.len()])
            });
        }
        (program, statuses)
    }

    /// Loads the board with these binaries, without keeping a program.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn load_binaries(context: &Context, binaries: &[(DeviceId, &[u8])]) -> ClResult<()> {
        let raw = create_with_binaries(context.cell(), binaries, &mut vec![0; binaries.len()])?;
        Self::own(raw, opencl_sys::CL_SUCCESS).map(drop)
    }

    /// Whether the vendor has the program. It has not while another image is on a board that is reconfigured as a
    /// whole.
    #[must_use]
    pub fn is_made(&self) -> bool {
        !self.raw().is_null()
    }

    /// Makes a program of the devices' built-in kernels. `names` are separated by semicolons.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn with_built_in_kernels(context: &Context, devices: &[DeviceId], names: &CStr) -> ClResult<Self> {
        let raw = create_with_built_in(context.cell(), devices, names)?;
        let program = Self::own(raw, opencl_sys::CL_SUCCESS)?;
        let (of, devices, names) = (context.cell().clone(), devices.to_vec(), names.to_owned());
        object::remember(program.cell(), Kind::Program { images: Vec::new() }, move |_| {
            create_with_built_in(&of, &devices, &names)
        });
        Ok(program)
    }

    /// Compiles and links on the calling thread, until the build has ended. Without devices it builds for all
    /// devices of the program. `included` keeps the included files as long as the program may be built again.
    ///
    /// # Errors
    /// The vendor's error, -11 if the build fails; the build log has the reason.
    pub fn build(&self, devices: &[DeviceId], options: &CStr, included: Option<Included>) -> ClResult<()> {
        build(self.raw(), devices, options)?;
        let (devices, options) = (devices.to_vec(), options.to_owned());
        object::and_then(self.cell(), move |program| {
            let _stays = &included;
            build(program, &devices, &options)
        });
        Ok(())
    }

    /// Compiles without linking, on the calling thread, with these programs as headers.
    ///
    /// # Errors
    /// The vendor's error, -15 if the compilation fails; the build log has the reason.
    pub fn compile(
        &self,
        devices: &[DeviceId],
        options: &CStr,
        headers: &[(CString, &Self)],
        included: Option<Included>,
    ) -> ClResult<()> {
        let headers: Vec<_> =
            headers.iter().map(|(name, program)| (name.clone(), program.cell().clone())).collect();
        compile(self.raw(), devices, options, &headers)?;
        let (devices, options) = (devices.to_vec(), options.to_owned());
        object::and_then(self.cell(), move |program| {
            let _stays = &included;
            compile(program, &devices, &options, &headers)
        });
        Ok(())
    }

    /// Links compiled programs on the calling thread. A failed link may also return a program, which has the log.
    pub fn link(
        context: &Context,
        devices: &[DeviceId],
        options: &CStr,
        programs: &[&Self],
    ) -> (ClResult<()>, Option<Self>) {
        let of = context.cell().clone();
        let inputs: Vec<_> = programs.iter().map(|program| program.cell().clone()).collect();
        match link(&of, devices, options, &inputs) {
            Ok((status, raw)) => {
                let program = Self::own(raw, opencl_sys::CL_SUCCESS).ok();
                if let Some(program) = &program {
                    let (devices, options) = (devices.to_vec(), options.to_owned());
                    object::remember(program.cell(), Kind::Program { images: Vec::new() }, move |_| {
                        link(&of, &devices, &options, &inputs).map(|(_, program)| program)
                    });
                }
                (check(status), program)
            }
            Err(error) => (Err(error), None),
        }
    }

    /// `cl_build_status` of a device.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn build_status(&self, device: DeviceId) -> ClResult<i32> {
        let bytes = self.build_info(device, CL_PROGRAM_BUILD_STATUS)?;
        let mut word = [0; 4];
        let length = bytes.len().min(4);
        word[..length].copy_from_slice(&bytes[..length]);
        Ok(i32::from_le_bytes(word))
    }

    /// The build log of a device.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn build_log(&self, device: DeviceId) -> ClResult<String> {
        self.build_info(device, CL_PROGRAM_BUILD_LOG).map(text)
    }

    /// `cl_program_binary_type` of a device.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn binary_type(&self, device: DeviceId) -> ClResult<u32> {
        let bytes = self.build_info(device, CL_PROGRAM_BINARY_TYPE)?;
        Ok(u32::try_from(number(&bytes)).unwrap_or(0))
    }

    /// Bytes of the program's variables that keep their values between launches; 0 if the vendor does not have the
    /// number.
    #[must_use]
    pub fn global_variable_bytes(&self, device: DeviceId) -> u64 {
        let bytes = self.build_info(device, CL_PROGRAM_BUILD_GLOBAL_VARIABLE_TOTAL_SIZE);
        bytes.map(|bytes| number(&bytes)).unwrap_or(0)
    }

    fn build_info(&self, device: DeviceId, param: u32) -> ClResult<Vec<u8>> {
        query(|size, value, needed| {
            // SAFETY: program and device are live, and `query` passes valid pointers.
            Ok(unsafe { call!(clGetProgramBuildInfo(self.raw(), device.0, param, size, value, needed)) })
        })
    }

    /// Number of kernels of the built program.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn kernel_count(&self) -> ClResult<u64> {
        query_u64(|size, value, needed| {
            let param = opencl_sys::CL_PROGRAM_NUM_KERNELS;
            // SAFETY: the program is live, and `query` passes valid pointers.
            Ok(unsafe { call!(clGetProgramInfo(self.raw(), param, size, value, needed)) })
        })
    }

    /// The binaries of the program's devices, in their order; empty for a device without binary.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn binaries(&self) -> ClResult<Vec<Vec<u8>>> {
        let lengths = query(|size, value, needed| {
            // SAFETY: the program is live, and `query` passes valid pointers.
            Ok(unsafe { call!(clGetProgramInfo(self.raw(), CL_PROGRAM_BINARY_SIZES, size, value, needed)) })
        })?;
        let mut binaries: Vec<Vec<u8>> = Vec::new();
        for length in lengths.chunks_exact(size_of::<usize>()) {
            let length = usize::try_from(number(length)).unwrap_or(usize::MAX);
            if length > MAX_BINARY_BYTES {
                return Err(ClError::OUT_OF_HOST_MEMORY);
            }
            binaries.push(vec![0; length]);
        }
        let mut pointers: Vec<*mut u8> = binaries
            .iter_mut()
            .map(|b| if b.is_empty() { ptr::null_mut() } else { b.as_mut_ptr() })
            .collect();
        // SAFETY: there is one pointer for each device, NULL or with room for the length that the vendor returned.
        check(unsafe {
            call!(clGetProgramInfo(
                self.raw(),
                CL_PROGRAM_BINARIES,
                size_of_val(pointers.as_slice()),
                pointers.as_mut_ptr().cast(),
                ptr::null_mut()
            ))
        })?;
        Ok(binaries)
    }
}
