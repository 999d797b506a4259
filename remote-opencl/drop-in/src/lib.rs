//! `libOpenCL.so.1`: the remote OpenCL library in place of an ICD loader, for programs whose image has no loader.
//!
//! The code is that of the ICD. This crate adds the standard's names, each a jump through the ICD's dispatch table.
//! The crate is an archive, because Rust can't give the symbols of a shared library the versions that programs ask
//! for: the `Makefile` beside it links the library from the archive and `libOpenCL.map`.
//!
//! The library loads no other ICD: all its platforms are those of device managers. [`fpga_opencl_icd`] exports two
//! of the standard's names already.

use fpga_opencl_icd::table::{TABLE, cl_icd_dispatch};
use std::arch::global_asm;
use std::mem::offset_of;

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("libOpenCL.so.1 is written for x86-64 and aarch64; on others use the ICD with a loader");

/// Defines functions that jump to their entries in the table.
macro_rules! functions {
    ($($name:ident)*) => { $(
        #[cfg(target_arch = "x86_64")]
        global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            "endbr64",
            "jmp *{table}+{offset}(%rip)",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            table = sym TABLE,
            offset = const offset_of!(cl_icd_dispatch, $name),
            options(att_syntax)
        );
        #[cfg(target_arch = "aarch64")]
        global_asm!(
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            concat!(stringify!($name), ":"),
            "bti c",
            "adrp x16, {table}",
            "add x16, x16, :lo12:{table}",
            "ldr x16, [x16, {offset}]",
            "br x16",
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            table = sym TABLE,
            offset = const offset_of!(cl_icd_dispatch, $name),
        );
    )* };
}

functions! {
    clBuildProgram
    clCloneKernel
    clCompileProgram
    clCreateBuffer
    clCreateBufferWithProperties
    clCreateCommandQueue
    clCreateCommandQueueWithProperties
    clCreateContext
    clCreateContextFromType
    clCreateEventFromEGLSyncKHR
    clCreateEventFromGLsyncKHR
    clCreateFromEGLImageKHR
    clCreateFromGLBuffer
    clCreateFromGLRenderbuffer
    clCreateFromGLTexture
    clCreateFromGLTexture2D
    clCreateFromGLTexture3D
    clCreateImage
    clCreateImage2D
    clCreateImage3D
    clCreateImageWithProperties
    clCreateKernel
    clCreateKernelsInProgram
    clCreatePipe
    clCreateProgramWithBinary
    clCreateProgramWithBuiltInKernels
    clCreateProgramWithIL
    clCreateProgramWithSource
    clCreateSampler
    clCreateSamplerWithProperties
    clCreateSubBuffer
    clCreateSubDevices
    clCreateSubDevicesEXT
    clCreateUserEvent
    clEnqueueAcquireEGLObjectsKHR
    clEnqueueAcquireGLObjects
    clEnqueueBarrier
    clEnqueueBarrierWithWaitList
    clEnqueueCopyBuffer
    clEnqueueCopyBufferRect
    clEnqueueCopyBufferToImage
    clEnqueueCopyImage
    clEnqueueCopyImageToBuffer
    clEnqueueFillBuffer
    clEnqueueFillImage
    clEnqueueMapBuffer
    clEnqueueMapImage
    clEnqueueMarker
    clEnqueueMarkerWithWaitList
    clEnqueueMigrateMemObjects
    clEnqueueNDRangeKernel
    clEnqueueNativeKernel
    clEnqueueReadBuffer
    clEnqueueReadBufferRect
    clEnqueueReadImage
    clEnqueueReleaseEGLObjectsKHR
    clEnqueueReleaseGLObjects
    clEnqueueSVMFree
    clEnqueueSVMMap
    clEnqueueSVMMemFill
    clEnqueueSVMMemcpy
    clEnqueueSVMMigrateMem
    clEnqueueSVMUnmap
    clEnqueueTask
    clEnqueueUnmapMemObject
    clEnqueueWaitForEvents
    clEnqueueWriteBuffer
    clEnqueueWriteBufferRect
    clEnqueueWriteImage
    clFinish
    clFlush
    clGetCommandQueueInfo
    clGetContextInfo
    clGetDeviceAndHostTimer
    clGetDeviceIDs
    clGetDeviceInfo
    clGetEventInfo
    clGetEventProfilingInfo
    clGetExtensionFunctionAddressForPlatform
    clGetGLContextInfoKHR
    clGetGLObjectInfo
    clGetGLTextureInfo
    clGetHostTimer
    clGetImageInfo
    clGetKernelArgInfo
    clGetKernelInfo
    clGetKernelSubGroupInfo
    clGetKernelSubGroupInfoKHR
    clGetKernelWorkGroupInfo
    clGetMemObjectInfo
    clGetPipeInfo
    clGetPlatformIDs
    clGetProgramBuildInfo
    clGetProgramInfo
    clGetSamplerInfo
    clGetSupportedImageFormats
    clLinkProgram
    clReleaseCommandQueue
    clReleaseContext
    clReleaseDevice
    clReleaseDeviceEXT
    clReleaseEvent
    clReleaseKernel
    clReleaseMemObject
    clReleaseProgram
    clReleaseSampler
    clRetainCommandQueue
    clRetainContext
    clRetainDevice
    clRetainDeviceEXT
    clRetainEvent
    clRetainKernel
    clRetainMemObject
    clRetainProgram
    clRetainSampler
    clSVMAlloc
    clSVMFree
    clSetCommandQueueProperty
    clSetContextDestructorCallback
    clSetDefaultDeviceCommandQueue
    clSetEventCallback
    clSetKernelArg
    clSetKernelArgSVMPointer
    clSetKernelExecInfo
    clSetMemObjectDestructorCallback
    clSetProgramReleaseCallback
    clSetProgramSpecializationConstant
    clSetUserEventStatus
    clUnloadCompiler
    clUnloadPlatformCompiler
    clWaitForEvents
}
