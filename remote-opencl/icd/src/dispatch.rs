//! The dispatch table, through which the ICD loader calls the functions of the standard.
//!
//! The order is that of `cl_icd.h` (149 functions of OpenCL 3.0 and one of 3.1). The bindings' struct fixes it, and
//! the types of its fields check the signatures of the functions here. No slot is null, since calling a null one
//! would crash the application.

use crate::api::{
    context, device, event, extension, image, kernel, launch, memory, pipe, platform, program, queue,
    sampler, sub_group, svm, transfer, transfer_image, transfer_rect,
};
use crate::cl;
use crate::unsupported::Stub;
use std::ffi::c_void;

/// The dispatch table to which every handle points.
#[repr(C)]
pub struct Dispatch {
    /// The first field, so that offsets in it are offsets in the table.
    standard: cl::cl_icd_dispatch,
    /// Slot 149, new in OpenCL 3.1.
    suggested_local_work_size: Option<SuggestedLocalWorkSize>,
}

type SuggestedLocalWorkSize = unsafe extern "C" fn(
    cl::cl_command_queue,
    cl::cl_kernel,
    cl::cl_uint,
    *const usize,
    *const usize,
    *mut usize,
) -> cl::cl_int;

/// Defines the table and the look-up by name, from one line for each function.
macro_rules! dispatch_table {
    ($($function:ident = $module:ident)*) => {
        /// The dispatch table of all handles.
        pub static DISPATCH: Dispatch = Dispatch {
            standard: cl::cl_icd_dispatch { $($function: dispatch_table!(@slot $module $function),)* },
            suggested_local_work_size: Stub::STUB,
        };

        /// The address of a function by its name; null for an unknown or unsupported function.
        pub fn address_of(name: &str) -> *const c_void {
            match name {
                // The function's name as an extension.
                "clCreateProgramWithILKHR" => address_of("clCreateProgramWithIL"),
                $(stringify!($function) => dispatch_table!(@address $module $function),)*
                _ => std::ptr::null(),
            }
        }

        /// The functions in order, with their offsets in the table.
        #[cfg(test)]
        const OFFSETS: &[(&str, usize)] =
            &[$((stringify!($function), std::mem::offset_of!(cl::cl_icd_dispatch, $function)),)*];

        /// The result of calling each function with zeros, as text.
        #[cfg(test)]
        fn probed() -> Vec<(&'static str, String)> {
            use tests::probe::Probe as _;
            vec![
                $((stringify!($function), DISPATCH.standard.$function.probe()),)*
                ("clGetKernelSuggestedLocalWorkSize", DISPATCH.suggested_local_work_size.probe()),
            ]
        }
    };
    (@slot unsupported $function:ident) => { Stub::STUB };
    (@slot $module:ident $function:ident) => { Some($module::$function) };
    (@address unsupported $function:ident) => { std::ptr::null() };
    (@address $module:ident $function:ident) => {
        DISPATCH.standard.$function.map_or(std::ptr::null(), |function| function as *const c_void)
    };
}

dispatch_table! {
    clGetPlatformIDs = platform
    clGetPlatformInfo = platform
    clGetDeviceIDs = device
    clGetDeviceInfo = device
    clCreateContext = context
    clCreateContextFromType = context
    clRetainContext = context
    clReleaseContext = context
    clGetContextInfo = context
    clCreateCommandQueue = queue
    clRetainCommandQueue = queue
    clReleaseCommandQueue = queue
    clGetCommandQueueInfo = queue
    clSetCommandQueueProperty = queue
    clCreateBuffer = memory
    clCreateImage2D = image
    clCreateImage3D = image
    clRetainMemObject = memory
    clReleaseMemObject = memory
    clGetSupportedImageFormats = image
    clGetMemObjectInfo = memory
    clGetImageInfo = image
    clCreateSampler = sampler
    clRetainSampler = sampler
    clReleaseSampler = sampler
    clGetSamplerInfo = sampler
    clCreateProgramWithSource = program
    clCreateProgramWithBinary = program
    clRetainProgram = program
    clReleaseProgram = program
    clBuildProgram = program
    clUnloadCompiler = platform
    clGetProgramInfo = program
    clGetProgramBuildInfo = program
    clCreateKernel = kernel
    clCreateKernelsInProgram = kernel
    clRetainKernel = kernel
    clReleaseKernel = kernel
    clSetKernelArg = kernel
    clGetKernelInfo = kernel
    clGetKernelWorkGroupInfo = kernel
    clWaitForEvents = event
    clGetEventInfo = event
    clRetainEvent = event
    clReleaseEvent = event
    clGetEventProfilingInfo = event
    clFlush = queue
    clFinish = queue
    clEnqueueReadBuffer = transfer
    clEnqueueWriteBuffer = transfer
    clEnqueueCopyBuffer = transfer
    clEnqueueReadImage = transfer_image
    clEnqueueWriteImage = transfer_image
    clEnqueueCopyImage = transfer_image
    clEnqueueCopyImageToBuffer = transfer_image
    clEnqueueCopyBufferToImage = transfer_image
    clEnqueueMapBuffer = transfer
    clEnqueueMapImage = transfer_image
    clEnqueueUnmapMemObject = transfer
    clEnqueueNDRangeKernel = launch
    clEnqueueTask = launch
    clEnqueueNativeKernel = launch
    clEnqueueMarker = launch
    clEnqueueWaitForEvents = launch
    clEnqueueBarrier = launch
    clGetExtensionFunctionAddress = extension
    clCreateFromGLBuffer = unsupported
    clCreateFromGLTexture2D = unsupported
    clCreateFromGLTexture3D = unsupported
    clCreateFromGLRenderbuffer = unsupported
    clGetGLObjectInfo = unsupported
    clGetGLTextureInfo = unsupported
    clEnqueueAcquireGLObjects = unsupported
    clEnqueueReleaseGLObjects = unsupported
    clGetGLContextInfoKHR = unsupported
    clGetDeviceIDsFromD3D10KHR = unsupported
    clCreateFromD3D10BufferKHR = unsupported
    clCreateFromD3D10Texture2DKHR = unsupported
    clCreateFromD3D10Texture3DKHR = unsupported
    clEnqueueAcquireD3D10ObjectsKHR = unsupported
    clEnqueueReleaseD3D10ObjectsKHR = unsupported
    clSetEventCallback = event
    clCreateSubBuffer = memory
    clSetMemObjectDestructorCallback = memory
    clCreateUserEvent = event
    clSetUserEventStatus = event
    clEnqueueReadBufferRect = transfer_rect
    clEnqueueWriteBufferRect = transfer_rect
    clEnqueueCopyBufferRect = transfer_rect
    clCreateSubDevicesEXT = unsupported
    clRetainDeviceEXT = unsupported
    clReleaseDeviceEXT = unsupported
    clCreateEventFromGLsyncKHR = unsupported
    clCreateSubDevices = device
    clRetainDevice = device
    clReleaseDevice = device
    clCreateImage = image
    clCreateProgramWithBuiltInKernels = program
    clCompileProgram = program
    clLinkProgram = program
    clUnloadPlatformCompiler = platform
    clGetKernelArgInfo = kernel
    clEnqueueFillBuffer = transfer
    clEnqueueFillImage = transfer_image
    clEnqueueMigrateMemObjects = transfer
    clEnqueueMarkerWithWaitList = launch
    clEnqueueBarrierWithWaitList = launch
    clGetExtensionFunctionAddressForPlatform = extension
    clCreateFromGLTexture = unsupported
    clGetDeviceIDsFromD3D11KHR = unsupported
    clCreateFromD3D11BufferKHR = unsupported
    clCreateFromD3D11Texture2DKHR = unsupported
    clCreateFromD3D11Texture3DKHR = unsupported
    clCreateFromDX9MediaSurfaceKHR = unsupported
    clEnqueueAcquireD3D11ObjectsKHR = unsupported
    clEnqueueReleaseD3D11ObjectsKHR = unsupported
    clGetDeviceIDsFromDX9MediaAdapterKHR = unsupported
    clEnqueueAcquireDX9MediaSurfacesKHR = unsupported
    clEnqueueReleaseDX9MediaSurfacesKHR = unsupported
    clCreateFromEGLImageKHR = unsupported
    clEnqueueAcquireEGLObjectsKHR = unsupported
    clEnqueueReleaseEGLObjectsKHR = unsupported
    clCreateEventFromEGLSyncKHR = unsupported
    clCreateCommandQueueWithProperties = queue
    clCreatePipe = pipe
    clGetPipeInfo = pipe
    clSVMAlloc = svm
    clSVMFree = svm
    clEnqueueSVMFree = svm
    clEnqueueSVMMemcpy = svm
    clEnqueueSVMMemFill = svm
    clEnqueueSVMMap = svm
    clEnqueueSVMUnmap = svm
    clCreateSamplerWithProperties = sampler
    clSetKernelArgSVMPointer = svm
    clSetKernelExecInfo = svm
    clGetKernelSubGroupInfoKHR = sub_group
    clCloneKernel = kernel
    clCreateProgramWithIL = program
    clEnqueueSVMMigrateMem = svm
    clGetDeviceAndHostTimer = device
    clGetHostTimer = device
    clGetKernelSubGroupInfo = sub_group
    clSetDefaultDeviceCommandQueue = queue
    clSetProgramReleaseCallback = program
    clSetProgramSpecializationConstant = program
    clCreateBufferWithProperties = memory
    clCreateImageWithProperties = image
    clSetContextDestructorCallback = context
}

#[cfg(test)]
mod tests;
