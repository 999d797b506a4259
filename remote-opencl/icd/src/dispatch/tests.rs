pub mod probe;

use super::*;
use std::mem::offset_of;

const SLOT: usize = size_of::<*const c_void>();

macro_rules! slot {
    ($function:ident) => {
        offset_of!(cl::cl_icd_dispatch, $function) / SLOT
    };
}

#[test]
fn the_order_is_that_of_the_standard() {
    assert_eq!(offset_of!(Dispatch, standard), 0);
    assert_eq!(slot!(clGetPlatformIDs), 0);
    assert_eq!(slot!(clCreateContext), 4);
    assert_eq!(slot!(clCreateBuffer), 14);
    assert_eq!(slot!(clUnloadCompiler), 31);
    assert_eq!(slot!(clSetKernelArg), 38);
    assert_eq!(slot!(clEnqueueNDRangeKernel), 59);
    assert_eq!(slot!(clGetExtensionFunctionAddress), 65);
    assert_eq!(slot!(clCreateFromGLBuffer), 66);
    assert_eq!(slot!(clGetGLContextInfoKHR), 74);
    assert_eq!(slot!(clGetDeviceIDsFromD3D10KHR), 75);
    assert_eq!(slot!(clSetEventCallback), 81);
    assert_eq!(slot!(clCreateSubDevices), 93);
    assert_eq!(slot!(clGetExtensionFunctionAddressForPlatform), 107);
    assert_eq!(slot!(clCreateCommandQueueWithProperties), 123);
    assert_eq!(slot!(clCloneKernel), 137);
    assert_eq!(slot!(clCreateBufferWithProperties), 146);
    assert_eq!(slot!(clSetContextDestructorCallback), 148);
    assert_eq!(offset_of!(Dispatch, suggested_local_work_size) / SLOT, 149);
    assert_eq!(size_of::<Dispatch>() / SLOT, 150);
}

#[test]
fn no_slot_is_null() {
    let words = (&raw const DISPATCH).cast::<usize>();
    for slot in 0..size_of::<Dispatch>() / SLOT {
        // SAFETY: the word lies inside the table, whose fields are all function pointers or None, one word each.
        assert_ne!(unsafe { words.add(slot).read() }, 0, "slot {slot}");
    }
}

#[test]
fn stubs_refuse_in_the_way_of_their_signature() {
    let table = &DISPATCH.standard;
    let mut code = 0;
    // SAFETY: stubs access no argument but errcode_ret.
    unsafe {
        let buffer = table.clCreateFromGLBuffer.unwrap()(std::ptr::null_mut(), 0, 0, &raw mut code);
        assert!(buffer.is_null());
        assert_eq!(code, cl::CL_INVALID_OPERATION);
        assert_eq!(table.clReleaseDeviceEXT.unwrap()(std::ptr::null_mut()), -59);
        assert!(table.clSVMAlloc.unwrap()(std::ptr::null_mut(), 0, 8, 0).is_null());
        table.clSVMFree.unwrap()(std::ptr::null_mut(), std::ptr::null_mut());
    }
}

#[test]
fn functions_are_found_by_name() {
    let expected = DISPATCH.standard.clCreateBuffer.unwrap() as *const c_void;
    assert_eq!(address_of("clCreateBuffer"), expected);
    assert!(address_of("clNoSuchFunction").is_null());
}

/// Compiles and runs a C program, and returns its standard output.
fn run_c(source: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let (c, program) = (folder.path().join("test.c"), folder.path().join("test"));
    std::fs::write(&c, source).unwrap();
    let compiled = std::process::Command::new("cc").arg(&c).arg("-o").arg(&program).status();
    assert!(compiled.expect("a C compiler, cc").success(), "cc failed (are the OpenCL headers installed?)");
    let output = std::process::Command::new(&program).output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_offset_is_that_of_the_c_header() {
    let mut source = String::from(
        "#define CL_TARGET_OPENCL_VERSION 300\n#define CL_USE_DEPRECATED_OPENCL_1_0_APIS\n\
         #include <CL/cl_icd.h>\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {\n",
    );
    for (name, _) in OFFSETS {
        source += &format!("printf(\"{name} %zu\\n\", offsetof(cl_icd_dispatch, {name}));\n");
    }
    source += "return 0; }\n";
    let ours: String = OFFSETS.iter().map(|(name, offset)| format!("{name} {offset}\n")).collect();
    assert_eq!(run_c(&source), ours);
    assert_eq!(OFFSETS.len(), 149);
}
