//! The table of the OpenCL loader's C functions, looked up once per process.
//!
//! The library is the one in `OPENCL_LIBRARY`, or the system's `libOpenCL.so.1`. The environment at the start of
//! the process decides which vendor the loader loads.
#![allow(non_snake_case, reason = "the functions keep the names of the standard")]

use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::cl_function_types::*;
use std::ffi::{CStr, CString, c_void};
use std::sync::OnceLock;

/// The reason why no OpenCL loader can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The library can't be opened.
    #[error(
        "the OpenCL loader can't be opened: {0}; install one (Debian: ocl-icd-libopencl1) or name it in OPENCL_LIBRARY"
    )]
    Open(String),
    /// The library is older than OpenCL 1.2.
    #[error("the OpenCL loader lacks {0}: one of OpenCL 1.2 or later is needed")]
    Lacks(&'static str),
}

macro_rules! functions {
    (required { $($name:ident: $kind:ident,)* } optional { $($later:ident: $later_kind:ident,)* }) => {
        pub(crate) struct Api {
            $(pub(crate) $name: $kind,)*
            $(pub(crate) $later: $later_kind,)*
        }

        impl Api {
            fn look_up(library: *mut c_void) -> Result<Self, LoadError> {
                $(
                    let symbol = CString::new(stringify!($name)).unwrap_or_default();
                    // SAFETY: `library` is a live handle of dlopen, and the name ends in NUL.
                    let address = unsafe { libc::dlsym(library, symbol.as_ptr()) };
                    if address.is_null() {
                        return Err(LoadError::Lacks(stringify!($name)));
                    }
                    // SAFETY: the symbol is OpenCL's function of that name, and `$kind` is that function's type. An
                    // address that is not NULL is the `Some` of an optional function.
                    let $name = unsafe { std::mem::transmute::<*mut c_void, $kind>(address) };
                )*
                $(
                    let symbol = CString::new(stringify!($later)).unwrap_or_default();
                    // SAFETY: as above; NULL is the `None` of an optional function.
                    let $later = unsafe {
                        std::mem::transmute::<*mut c_void, $later_kind>(libc::dlsym(library, symbol.as_ptr()))
                    };
                )*
                Ok(Self { $($name,)* $($later,)* })
            }
        }
    };
}

functions! {
    required {
        clBuildProgram: clBuildProgram_t,
        clCompileProgram: clCompileProgram_t,
        clCreateBuffer: clCreateBuffer_t,
        clCreateCommandQueue: clCreateCommandQueue_t,
        clCreateContext: clCreateContext_t,
        clCreateImage: clCreateImage_t,
        clCreateKernel: clCreateKernel_t,
        clCreateKernelsInProgram: clCreateKernelsInProgram_t,
        clCreateProgramWithBinary: clCreateProgramWithBinary_t,
        clCreateProgramWithBuiltInKernels: clCreateProgramWithBuiltInKernels_t,
        clCreateProgramWithSource: clCreateProgramWithSource_t,
        clCreateSampler: clCreateSampler_t,
        clCreateSubBuffer: clCreateSubBuffer_t,
        clCreateSubDevices: clCreateSubDevices_t,
        clEnqueueBarrierWithWaitList: clEnqueueBarrierWithWaitList_t,
        clEnqueueCopyBuffer: clEnqueueCopyBuffer_t,
        clEnqueueCopyBufferRect: clEnqueueCopyBufferRect_t,
        clEnqueueCopyBufferToImage: clEnqueueCopyBufferToImage_t,
        clEnqueueCopyImage: clEnqueueCopyImage_t,
        clEnqueueCopyImageToBuffer: clEnqueueCopyImageToBuffer_t,
        clEnqueueFillBuffer: clEnqueueFillBuffer_t,
        clEnqueueFillImage: clEnqueueFillImage_t,
        clEnqueueMarkerWithWaitList: clEnqueueMarkerWithWaitList_t,
        clEnqueueNDRangeKernel: clEnqueueNDRangeKernel_t,
        clEnqueueReadBuffer: clEnqueueReadBuffer_t,
        clEnqueueReadBufferRect: clEnqueueReadBufferRect_t,
        clEnqueueReadImage: clEnqueueReadImage_t,
        clEnqueueWriteBuffer: clEnqueueWriteBuffer_t,
        clEnqueueWriteBufferRect: clEnqueueWriteBufferRect_t,
        clEnqueueWriteImage: clEnqueueWriteImage_t,
        clFlush: clFlush_t,
        clGetDeviceIDs: clGetDeviceIDs_t,
        clGetDeviceInfo: clGetDeviceInfo_t,
        clGetEventInfo: clGetEventInfo_t,
        clGetEventProfilingInfo: clGetEventProfilingInfo_t,
        clGetImageInfo: clGetImageInfo_t,
        clGetKernelArgInfo: clGetKernelArgInfo_t,
        clGetKernelInfo: clGetKernelInfo_t,
        clGetKernelWorkGroupInfo: clGetKernelWorkGroupInfo_t,
        clGetPlatformIDs: clGetPlatformIDs_t,
        clGetPlatformInfo: clGetPlatformInfo_t,
        clGetProgramBuildInfo: clGetProgramBuildInfo_t,
        clGetProgramInfo: clGetProgramInfo_t,
        clGetSupportedImageFormats: clGetSupportedImageFormats_t,
        clLinkProgram: clLinkProgram_t,
        clReleaseCommandQueue: clReleaseCommandQueue_t,
        clGetContextInfo: clGetContextInfo_t,
        clReleaseContext: clReleaseContext_t,
        clReleaseDevice: clReleaseDevice_t,
        clReleaseEvent: clReleaseEvent_t,
        clReleaseKernel: clReleaseKernel_t,
        clReleaseMemObject: clReleaseMemObject_t,
        clReleaseProgram: clReleaseProgram_t,
        clReleaseSampler: clReleaseSampler_t,
        clSetEventCallback: clSetEventCallback_t,
        clSetKernelArg: clSetKernelArg_t,
        clSetMemObjectDestructorCallback: clSetMemObjectDestructorCallback_t,
        clWaitForEvents: clWaitForEvents_t,
    }
    optional {
        clCreateCommandQueueWithProperties: clCreateCommandQueueWithProperties_t,
        clCreatePipe: clCreatePipe_t,
        clCreateProgramWithIL: clCreateProgramWithIL_t,
        clGetExtensionFunctionAddressForPlatform: clGetExtensionFunctionAddressForPlatform_t,
        clGetKernelSubGroupInfo: clGetKernelSubGroupInfo_t,
        clSetDefaultDeviceCommandQueue: clSetDefaultDeviceCommandQueue_t,
        clSetProgramSpecializationConstant: clSetProgramSpecializationConstant_t,
    }
}

/// `CL_PLATFORM_NOT_FOUND_KHR`.
const PLATFORM_NOT_FOUND: i32 = -1001;

static API: OnceLock<Result<Api, LoadError>> = OnceLock::new();

/// Loads the OpenCL loader, unless it is already loaded.
///
/// # Errors
/// [`LoadError`], the same one at every call.
pub fn load() -> Result<(), LoadError> {
    match API.get_or_init(open) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.clone()),
    }
}

/// The table of functions.
///
/// # Errors
/// The code for a missing platform if there is no loader.
pub(crate) fn api() -> ClResult<&'static Api> {
    API.get_or_init(open).as_ref().map_err(|_| ClError(PLATFORM_NOT_FOUND))
}

fn open() -> Result<Api, LoadError> {
    let name = std::env::var("OPENCL_LIBRARY").unwrap_or_else(|_| "libOpenCL.so.1".to_owned());
    let name = CString::new(name).map_err(|error| LoadError::Open(error.to_string()))?;
    // SAFETY: the name ends in NUL. The library's initialisers run, as those of every linked library do.
    let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: dlerror returns NULL or a text that lives until the next dl* call of this thread.
        let text = unsafe { libc::dlerror() };
        let text = if text.is_null() {
            "no reason given".to_owned()
        } else {
            // SAFETY: the text is not NULL, as checked above, and ends in NUL.
            unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
        };
        return Err(LoadError::Open(text));
    }
    // The library is never closed, since vendors' runtimes do not survive that.
    Api::look_up(library)
}

/// Calls a function of the table. Returns `CL_INVALID_OPERATION` from the caller if the loader lacks the function.
macro_rules! call {
    ($name:ident($($argument:expr),* $(,)?)) => {{
        let function = $crate::api::api()?
            .$name
            .ok_or(fpga_protocol::cl_error::ClError::INVALID_OPERATION)?;
        function($($argument),*)
    }};
}
pub(crate) use call;

/// Turns a status into a result: every status but `CL_SUCCESS` is an error.
pub(crate) fn check(status: i32) -> ClResult<()> {
    if status == opencl_sys::CL_SUCCESS { Ok(()) } else { Err(ClError(status)) }
}
