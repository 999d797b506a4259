//! All kernels of a program.

use crate::api::{call, check};
use crate::handles::Handle as _;
use crate::info::{query, text};
use crate::kernel::Kernel;
use crate::program::Program;
use fpga_protocol::cl_error::{ClError, ClResult};
use std::ffi::CString;
use std::ptr;

impl Program {
    /// One kernel object for each kernel of the built program.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn kernels(&self) -> ClResult<Vec<Kernel>> {
        // Intel's runtime makes all kernels at once only for a program that is built for all of its devices.
        self.all_kernels().or_else(|error| self.kernels_by_name().map_err(|_| error))
    }

    fn kernels_by_name(&self) -> ClResult<Vec<Kernel>> {
        let names = query(|size, value, needed| {
            let param = opencl_sys::CL_PROGRAM_KERNEL_NAMES;
            // SAFETY: the program is live, and `query` passes valid pointers.
            Ok(unsafe { call!(clGetProgramInfo(self.raw(), param, size, value, needed)) })
        })?;
        let names = text(names);
        let kernel = |name: &str| {
            let name = CString::new(name).map_err(|_| ClError::INVALID_KERNEL_NAME)?;
            Kernel::new(self, &name)
        };
        names.split(';').filter(|name| !name.is_empty()).map(kernel).collect()
    }

    fn all_kernels(&self) -> ClResult<Vec<Kernel>> {
        let mut count = 0;
        // SAFETY: the program is live, and no array is passed.
        check(unsafe { call!(clCreateKernelsInProgram(self.raw(), 0, ptr::null_mut(), &raw mut count)) })?;
        let mut raw = vec![ptr::null_mut(); count as usize];
        if count > 0 {
            // SAFETY: `raw` has room for `count` kernels.
            check(unsafe {
                call!(clCreateKernelsInProgram(self.raw(), count, raw.as_mut_ptr(), ptr::null_mut()))
            })?;
        }
        raw.into_iter().map(Kernel::learn).collect()
    }
}
