//! The dispatch table: what the ICD loader calls for each function of the standard.
//!
//! The order is that of `cl_icd.h` (149 functions of OpenCL 3.0 and one of 3.1) and is fixed by the bindings' struct,
//! whose field types also check every signature of ours. Every slot is filled: a null one would crash the application.

use crate::api::{
    context, device, event, extension, kernel, launch, memory, platform, program, queue, transfer,
};
use crate::cl;
use crate::unsupported::Stub;
use std::ffi::c_void;

/// The table that every handle of ours points to.
#[repr(C)]
pub struct Dispatch {
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

/// The only table.
pub static DISPATCH: Dispatch = Dispatch {
    suggested_local_work_size: Stub::STUB,
    standard: cl::cl_icd_dispatch {
        clGetPlatformIDs: Some(platform::clGetPlatformIDs),
        clGetPlatformInfo: Some(platform::clGetPlatformInfo),
        clGetDeviceIDs: Some(device::clGetDeviceIDs),
        clGetDeviceInfo: Some(device::clGetDeviceInfo),
        clCreateContext: Some(context::clCreateContext),
        clCreateContextFromType: Some(context::clCreateContextFromType),
        clRetainContext: Some(context::clRetainContext),
        clReleaseContext: Some(context::clReleaseContext),
        clGetContextInfo: Some(context::clGetContextInfo),
        clCreateCommandQueue: Some(queue::clCreateCommandQueue),
        clRetainCommandQueue: Some(queue::clRetainCommandQueue),
        clReleaseCommandQueue: Some(queue::clReleaseCommandQueue),
        clGetCommandQueueInfo: Some(queue::clGetCommandQueueInfo),
        clSetCommandQueueProperty: Stub::STUB,
        clCreateBuffer: Some(memory::clCreateBuffer),
        clCreateImage2D: Stub::STUB,
        clCreateImage3D: Stub::STUB,
        clRetainMemObject: Some(memory::clRetainMemObject),
        clReleaseMemObject: Some(memory::clReleaseMemObject),
        clGetSupportedImageFormats: Some(context::clGetSupportedImageFormats),
        clGetMemObjectInfo: Some(memory::clGetMemObjectInfo),
        clGetImageInfo: Stub::STUB,
        clCreateSampler: Stub::STUB,
        clRetainSampler: Stub::STUB,
        clReleaseSampler: Stub::STUB,
        clGetSamplerInfo: Stub::STUB,
        clCreateProgramWithSource: Some(program::clCreateProgramWithSource),
        clCreateProgramWithBinary: Some(program::clCreateProgramWithBinary),
        clRetainProgram: Some(program::clRetainProgram),
        clReleaseProgram: Some(program::clReleaseProgram),
        clBuildProgram: Some(program::clBuildProgram),
        clUnloadCompiler: Some(platform::clUnloadCompiler),
        clGetProgramInfo: Some(program::clGetProgramInfo),
        clGetProgramBuildInfo: Some(program::clGetProgramBuildInfo),
        clCreateKernel: Some(kernel::clCreateKernel),
        clCreateKernelsInProgram: Some(kernel::clCreateKernelsInProgram),
        clRetainKernel: Some(kernel::clRetainKernel),
        clReleaseKernel: Some(kernel::clReleaseKernel),
        clSetKernelArg: Some(kernel::clSetKernelArg),
        clGetKernelInfo: Some(kernel::clGetKernelInfo),
        clGetKernelWorkGroupInfo: Some(kernel::clGetKernelWorkGroupInfo),
        clWaitForEvents: Some(event::clWaitForEvents),
        clGetEventInfo: Some(event::clGetEventInfo),
        clRetainEvent: Some(event::clRetainEvent),
        clReleaseEvent: Some(event::clReleaseEvent),
        clGetEventProfilingInfo: Some(event::clGetEventProfilingInfo),
        clFlush: Some(queue::clFlush),
        clFinish: Some(queue::clFinish),
        clEnqueueReadBuffer: Some(transfer::clEnqueueReadBuffer),
        clEnqueueWriteBuffer: Some(transfer::clEnqueueWriteBuffer),
        clEnqueueCopyBuffer: Some(transfer::clEnqueueCopyBuffer),
        clEnqueueReadImage: Stub::STUB,
        clEnqueueWriteImage: Stub::STUB,
        clEnqueueCopyImage: Stub::STUB,
        clEnqueueCopyImageToBuffer: Stub::STUB,
        clEnqueueCopyBufferToImage: Stub::STUB,
        clEnqueueMapBuffer: Some(transfer::clEnqueueMapBuffer),
        clEnqueueMapImage: Stub::STUB,
        clEnqueueUnmapMemObject: Some(transfer::clEnqueueUnmapMemObject),
        clEnqueueNDRangeKernel: Some(launch::clEnqueueNDRangeKernel),
        clEnqueueTask: Some(launch::clEnqueueTask),
        clEnqueueNativeKernel: Stub::STUB,
        clEnqueueMarker: Some(launch::clEnqueueMarker),
        clEnqueueWaitForEvents: Some(launch::clEnqueueWaitForEvents),
        clEnqueueBarrier: Some(launch::clEnqueueBarrier),
        clGetExtensionFunctionAddress: Some(extension::clGetExtensionFunctionAddress),
        clCreateFromGLBuffer: Stub::STUB,
        clCreateFromGLTexture2D: Stub::STUB,
        clCreateFromGLTexture3D: Stub::STUB,
        clCreateFromGLRenderbuffer: Stub::STUB,
        clGetGLObjectInfo: Stub::STUB,
        clGetGLTextureInfo: Stub::STUB,
        clEnqueueAcquireGLObjects: Stub::STUB,
        clEnqueueReleaseGLObjects: Stub::STUB,
        clGetGLContextInfoKHR: Stub::STUB,
        clGetDeviceIDsFromD3D10KHR: Stub::STUB,
        clCreateFromD3D10BufferKHR: Stub::STUB,
        clCreateFromD3D10Texture2DKHR: Stub::STUB,
        clCreateFromD3D10Texture3DKHR: Stub::STUB,
        clEnqueueAcquireD3D10ObjectsKHR: Stub::STUB,
        clEnqueueReleaseD3D10ObjectsKHR: Stub::STUB,
        clSetEventCallback: Some(event::clSetEventCallback),
        clCreateSubBuffer: Some(memory::clCreateSubBuffer),
        clSetMemObjectDestructorCallback: Some(memory::clSetMemObjectDestructorCallback),
        clCreateUserEvent: Some(event::clCreateUserEvent),
        clSetUserEventStatus: Some(event::clSetUserEventStatus),
        clEnqueueReadBufferRect: Stub::STUB,
        clEnqueueWriteBufferRect: Stub::STUB,
        clEnqueueCopyBufferRect: Stub::STUB,
        clCreateSubDevicesEXT: Stub::STUB,
        clRetainDeviceEXT: Stub::STUB,
        clReleaseDeviceEXT: Stub::STUB,
        clCreateEventFromGLsyncKHR: Stub::STUB,
        clCreateSubDevices: Some(device::clCreateSubDevices),
        clRetainDevice: Some(device::clRetainDevice),
        clReleaseDevice: Some(device::clReleaseDevice),
        clCreateImage: Stub::STUB,
        clCreateProgramWithBuiltInKernels: Stub::STUB,
        clCompileProgram: Stub::STUB,
        clLinkProgram: Stub::STUB,
        clUnloadPlatformCompiler: Some(platform::clUnloadPlatformCompiler),
        clGetKernelArgInfo: Some(kernel::clGetKernelArgInfo),
        clEnqueueFillBuffer: Some(transfer::clEnqueueFillBuffer),
        clEnqueueFillImage: Stub::STUB,
        clEnqueueMigrateMemObjects: Some(transfer::clEnqueueMigrateMemObjects),
        clEnqueueMarkerWithWaitList: Some(launch::clEnqueueMarkerWithWaitList),
        clEnqueueBarrierWithWaitList: Some(launch::clEnqueueBarrierWithWaitList),
        clGetExtensionFunctionAddressForPlatform: Some(extension::clGetExtensionFunctionAddressForPlatform),
        clCreateFromGLTexture: Stub::STUB,
        clGetDeviceIDsFromD3D11KHR: Stub::STUB,
        clCreateFromD3D11BufferKHR: Stub::STUB,
        clCreateFromD3D11Texture2DKHR: Stub::STUB,
        clCreateFromD3D11Texture3DKHR: Stub::STUB,
        clCreateFromDX9MediaSurfaceKHR: Stub::STUB,
        clEnqueueAcquireD3D11ObjectsKHR: Stub::STUB,
        clEnqueueReleaseD3D11ObjectsKHR: Stub::STUB,
        clGetDeviceIDsFromDX9MediaAdapterKHR: Stub::STUB,
        clEnqueueAcquireDX9MediaSurfacesKHR: Stub::STUB,
        clEnqueueReleaseDX9MediaSurfacesKHR: Stub::STUB,
        clCreateFromEGLImageKHR: Stub::STUB,
        clEnqueueAcquireEGLObjectsKHR: Stub::STUB,
        clEnqueueReleaseEGLObjectsKHR: Stub::STUB,
        clCreateEventFromEGLSyncKHR: Stub::STUB,
        clCreateCommandQueueWithProperties: Some(queue::clCreateCommandQueueWithProperties),
        clCreatePipe: Stub::STUB,
        clGetPipeInfo: Stub::STUB,
        clSVMAlloc: Stub::STUB,
        clSVMFree: Stub::STUB,
        clEnqueueSVMFree: Stub::STUB,
        clEnqueueSVMMemcpy: Stub::STUB,
        clEnqueueSVMMemFill: Stub::STUB,
        clEnqueueSVMMap: Stub::STUB,
        clEnqueueSVMUnmap: Stub::STUB,
        clCreateSamplerWithProperties: Stub::STUB,
        clSetKernelArgSVMPointer: Stub::STUB,
        clSetKernelExecInfo: Stub::STUB,
        clGetKernelSubGroupInfoKHR: Stub::STUB,
        clCloneKernel: Stub::STUB,
        clCreateProgramWithIL: Stub::STUB,
        clEnqueueSVMMigrateMem: Stub::STUB,
        clGetDeviceAndHostTimer: Stub::STUB,
        clGetHostTimer: Stub::STUB,
        clGetKernelSubGroupInfo: Stub::STUB,
        clSetDefaultDeviceCommandQueue: Stub::STUB,
        clSetProgramReleaseCallback: Stub::STUB,
        clSetProgramSpecializationConstant: Stub::STUB,
        clCreateBufferWithProperties: Some(memory::clCreateBufferWithProperties),
        clCreateImageWithProperties: Stub::STUB,
        clSetContextDestructorCallback: Some(context::clSetContextDestructorCallback),
    },
};

/// The functions of the table by name, for those who ask by name.
pub fn address_of(name: &str) -> *const c_void {
    let table = &DISPATCH.standard;
    macro_rules! by_name {
        ($($function:ident)*) => {
            match name {
                $(stringify!($function) => table.$function.map_or(std::ptr::null(), |f| f as *const c_void),)*
                _ => std::ptr::null(),
            }
        };
    }
    by_name! {
        clGetPlatformIDs clGetPlatformInfo clUnloadCompiler clUnloadPlatformCompiler
        clGetDeviceIDs clGetDeviceInfo clRetainDevice clReleaseDevice clCreateSubDevices
        clCreateContext clCreateContextFromType clRetainContext clReleaseContext clGetContextInfo clSetContextDestructorCallback clGetSupportedImageFormats
        clCreateCommandQueue clCreateCommandQueueWithProperties clRetainCommandQueue clReleaseCommandQueue clGetCommandQueueInfo clFlush clFinish
        clCreateBuffer clCreateBufferWithProperties clCreateSubBuffer clRetainMemObject clReleaseMemObject clGetMemObjectInfo clSetMemObjectDestructorCallback
        clCreateProgramWithSource clCreateProgramWithBinary clRetainProgram clReleaseProgram clBuildProgram clGetProgramInfo clGetProgramBuildInfo
        clCreateKernel clCreateKernelsInProgram clRetainKernel clReleaseKernel clSetKernelArg clGetKernelInfo clGetKernelArgInfo clGetKernelWorkGroupInfo
        clWaitForEvents clGetEventInfo clRetainEvent clReleaseEvent clGetEventProfilingInfo clSetEventCallback clCreateUserEvent clSetUserEventStatus
        clEnqueueReadBuffer clEnqueueWriteBuffer clEnqueueCopyBuffer clEnqueueFillBuffer clEnqueueMapBuffer clEnqueueUnmapMemObject clEnqueueMigrateMemObjects
        clEnqueueNDRangeKernel clEnqueueTask clEnqueueMarker clEnqueueWaitForEvents clEnqueueBarrier clEnqueueMarkerWithWaitList clEnqueueBarrierWithWaitList
        clGetExtensionFunctionAddress clGetExtensionFunctionAddressForPlatform
    }
}

#[cfg(test)]
mod tests;
