//! Contexts, queues, buffers and events: each owns one reference of the vendor's object and gives it back when dropped.

use super::api::call;
use super::{ClError, ClResult, DeviceId, check};
use crate::segments::Slice;
use opencl_sys::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_QUEUE_PROFILING_ENABLE,
    cl_buffer_region, cl_command_queue, cl_context, cl_event, cl_mem,
};
use std::ptr;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($kind:ident) by $release:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name($kind);

        // SAFETY: the standard makes all calls on these objects thread-safe (clSetKernelArg, the exception, is for
        // kernels, whose wrapper wants `&mut`).
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            /// Takes over the reference that a creating call gave.
            pub(super) fn own(raw: $kind, status: i32) -> ClResult<Self> {
                check(status)?;
                if raw.is_null() { Err(ClError(opencl_sys::CL_OUT_OF_RESOURCES)) } else { Ok(Self(raw)) }
            }

            /// The vendor's handle; live as long as `self`.
            pub(super) fn raw(&self) -> $kind {
                self.0
            }
        }

        impl Drop for $name {
            fn drop(&mut self) {
                if let Some(release) = crate::vendor::api::api().ok().and_then(|api| api.$release) {
                    // SAFETY: the reference is ours and this is its only release.
                    unsafe { release(self.0) };
                }
            }
        }
    };
}
pub(super) use handle;

handle! {
    /// A context of one session.
    Context(cl_context) by clReleaseContext
}
handle! {
    /// A command queue; always measures.
    Queue(cl_command_queue) by clReleaseCommandQueue
}
handle! {
    /// A buffer or a region of one.
    Memory(cl_mem) by clReleaseMemObject
}
handle! {
    /// What a command that was enqueued completes.
    Event(cl_event) by clReleaseEvent
}

impl Context {
    /// A context over these devices, all of one platform.
    ///
    /// # Errors
    /// The vendor's.
    pub fn new(devices: &[DeviceId]) -> ClResult<Self> {
        let raw: Vec<_> = devices.iter().map(|device| device.0).collect();
        let count = u32::try_from(raw.len()).map_err(|_| ClError(opencl_sys::CL_INVALID_VALUE))?;
        let mut status = 0;
        // SAFETY: `raw` has `count` live devices; no callback is passed.
        let context = unsafe {
            call!(clCreateContext(ptr::null(), count, raw.as_ptr(), None, ptr::null_mut(), &raw mut status))
        };
        Self::own(context, status)
    }
}

impl Queue {
    /// A queue for a device of the context, with these properties and profiling.
    ///
    /// # Errors
    /// The vendor's.
    pub fn new(context: &Context, device: DeviceId, properties: u64) -> ClResult<Self> {
        let mut status = 0;
        let properties = properties | CL_QUEUE_PROFILING_ENABLE;
        // SAFETY: context and device are live.
        let queue =
            unsafe { call!(clCreateCommandQueue(context.raw(), device.0, properties, &raw mut status)) };
        Self::own(queue, status)
    }

    /// Sends what was enqueued to the device.
    ///
    /// # Errors
    /// The vendor's.
    pub fn flush(&self) -> ClResult<()> {
        // SAFETY: the queue is live.
        check(unsafe { call!(clFlush(self.raw())) })
    }
}

impl Memory {
    /// A buffer of `size` bytes; what it holds is anything, also what somebody else left there.
    ///
    /// # Errors
    /// The vendor's.
    pub fn new(context: &Context, flags: u64, size: usize) -> ClResult<Self> {
        let mut status = 0;
        // SAFETY: the context is live; without host-pointer flags no host pointer is read.
        let memory =
            unsafe { call!(clCreateBuffer(context.raw(), flags, size, ptr::null_mut(), &raw mut status)) };
        Self::own(memory, status)
    }

    /// A buffer that lies in shared memory, which stays mapped as long as the vendor has the buffer.
    ///
    /// # Errors
    /// The vendor's.
    pub fn in_segment(context: &Context, flags: u64, slice: Slice) -> ClResult<Self> {
        let mut status = 0;
        let flags = flags | opencl_sys::CL_MEM_USE_HOST_PTR;
        let (address, size) = (slice.address().cast(), slice.len());
        // SAFETY: the context is live; the bytes are mapped until the vendor says below that it needs them no more.
        let memory = unsafe { call!(clCreateBuffer(context.raw(), flags, size, address, &raw mut status)) };
        let memory = Self::own(memory, status)?;
        super::callbacks::on_destroyed(&memory, move || drop(slice))?;
        Ok(memory)
    }

    /// A buffer with a copy of these bytes.
    ///
    /// # Errors
    /// The vendor's.
    pub fn with_contents(context: &Context, flags: u64, bytes: &[u8]) -> ClResult<Self> {
        let mut status = 0;
        let flags = flags | opencl_sys::CL_MEM_COPY_HOST_PTR;
        let host = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the context is live; the vendor reads as many bytes as there are, before the call returns.
        let memory =
            unsafe { call!(clCreateBuffer(context.raw(), flags, bytes.len(), host, &raw mut status)) };
        Self::own(memory, status)
    }

    /// The region of `size` bytes from `origin` as a buffer of its own.
    ///
    /// # Errors
    /// The vendor's.
    pub fn sub(&self, flags: u64, origin: usize, size: usize) -> ClResult<Self> {
        let mut status = 0;
        let region = cl_buffer_region { origin, size };
        // SAFETY: the parent is live, the region is what CL_BUFFER_CREATE_TYPE_REGION wants.
        let memory = unsafe {
            call!(clCreateSubBuffer(
                self.raw(),
                flags,
                CL_BUFFER_CREATE_TYPE_REGION,
                (&raw const region).cast(),
                &raw mut status
            ))
        };
        Self::own(memory, status)
    }
}

impl Event {
    /// The execution status: 3 queued … 0 complete, negative failed.
    ///
    /// # Errors
    /// The vendor's.
    pub fn status(&self) -> ClResult<i32> {
        let mut status: i32 = 0;
        // SAFETY: the event is live, the answer is an int.
        check(unsafe {
            call!(clGetEventInfo(
                self.raw(),
                CL_EVENT_COMMAND_EXECUTION_STATUS,
                size_of::<i32>(),
                (&raw mut status).cast(),
                ptr::null_mut()
            ))
        })?;
        Ok(status)
    }

    /// Whether nothing more will happen to its command.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status().is_ok_and(|status| status <= opencl_sys::CL_COMPLETE)
    }

    /// Blocks until the command has ended.
    ///
    /// # Errors
    /// The vendor's, among them -14 where the command failed.
    pub fn wait(&self) -> ClResult<()> {
        let raw = self.raw();
        // SAFETY: one live event.
        check(unsafe { call!(clWaitForEvents(1, &raw const raw)) })
    }
}
