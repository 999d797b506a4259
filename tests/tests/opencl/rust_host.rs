//! An OpenCL host in Rust with `opencl3`. It doesn't know about kube-fpga and uses the first device that the loader
//! lists. The host is a test, so that this test binary is the program that runs in all ways.

#![expect(
    unsafe_code,
    reason = "opencl3 leaves it to its caller that kernels and transfers fit their buffers"
)]

use crate::programs::runs_in_all_ways;
use anyhow::{Context as _, ensure};
use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device, get_all_devices};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::memory::{Buffer, CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY};
use opencl3::program::Program;
use opencl3::types::{CL_BLOCKING, CL_NON_BLOCKING};
use std::ptr::null_mut;

const SOURCE: &str = "kernel void scale(global const int *from, int factor, global int *to) {
    size_t at = get_global_id(0);
    to[at] = factor * from[at];
}";
const LENGTH: usize = 4096;
const FACTOR: i32 = 3;

#[tokio::test]
async fn a_host_in_rust_needs_no_change() {
    let host = "rust_host::a_kernel_scales_a_vector";
    runs_in_all_ways(std::env::current_exe().unwrap(), &["--exact", host]).await;
}

#[test]
fn a_kernel_scales_a_vector() -> anyhow::Result<()> {
    let device = get_all_devices(CL_DEVICE_TYPE_ALL)?.first().copied().context("there is no device")?;
    let context = Context::from_device(&Device::new(device))?;
    let queue = CommandQueue::create_default_with_properties(&context, 0, 0)?;
    let program = Program::create_and_build_from_source(&context, SOURCE, "").map_err(anyhow::Error::msg)?;
    let kernel = Kernel::create(&program, "scale")?;

    let given: Vec<i32> = (0..).take(LENGTH).collect();
    let mut found = vec![0; LENGTH];
    // SAFETY: no host pointer is passed, so none needs to stay valid.
    let (mut from, to) = unsafe {
        (
            Buffer::<i32>::create(&context, CL_MEM_READ_ONLY, LENGTH, null_mut())?,
            Buffer::<i32>::create(&context, CL_MEM_WRITE_ONLY, LENGTH, null_mut())?,
        )
    };
    // SAFETY: `given` has the length of the buffer and lives until the blocking read below, which comes after the
    // write.
    let written = unsafe { queue.enqueue_write_buffer(&mut from, CL_NON_BLOCKING, 0, &given, &[])? };
    // SAFETY: the arguments have the number and types of the kernel's parameters, and its indices stay below LENGTH.
    let scaled = unsafe {
        ExecuteKernel::new(&kernel)
            .set_arg(&from)
            .set_arg(&FACTOR)
            .set_arg(&to)
            .set_global_work_size(LENGTH)
            .set_wait_event(&written)
            .enqueue_nd_range(&queue)?
    };
    // SAFETY: `found` has the length of the buffer, and the read blocks.
    unsafe { queue.enqueue_read_buffer(&to, CL_BLOCKING, 0, &mut found, &[scaled.get()])? };
    ensure!(
        given.iter().map(|value| FACTOR * value).eq(found.iter().copied()),
        "the kernel's result is wrong"
    );
    Ok(())
}
