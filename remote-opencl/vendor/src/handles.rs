//! Contexts, queues, buffers and events. Each handle owns one reference to the vendor's object and releases it on
//! drop.

use crate::api::{call, check};
use crate::info::DeviceId;
use crate::object::{self, Kind, VendorObject};
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::{
    CL_BUFFER_CREATE_TYPE_REGION, CL_EVENT_COMMAND_EXECUTION_STATUS, CL_QUEUE_PROFILING_ENABLE,
    cl_buffer_region, cl_command_queue, cl_context, cl_event, cl_mem,
};
use std::ptr;
use std::sync::Arc;

/// An owner of one reference to a vendor's object.
pub(crate) trait Handle {
    /// The vendor's type.
    type Raw;

    /// Another handle of the same object.
    fn of(cell: Arc<VendorObject>) -> Self;

    /// The cell with the object.
    fn cell(&self) -> &Arc<VendorObject>;

    /// The vendor's handle: live as long as `self`, or NULL if a reconfiguration has lost the object.
    fn raw(&self) -> Self::Raw;
}

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident($kind:ident) by $release:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name(std::sync::Arc<crate::object::VendorObject>);

        // SAFETY: OpenCL makes all calls on these objects thread-safe. The exception, clSetKernelArg, is for
        // kernels, whose wrapper takes `&mut`.
        unsafe impl Send for $name {}
        // SAFETY: as above.
        unsafe impl Sync for $name {}

        impl $name {
            /// Takes over the reference that a creating call returned.
            pub(crate) fn own(raw: $kind, status: i32) -> ClResult<Self> {
                check(status)?;
                if raw.is_null() {
                    return Err(ClError::OUT_OF_RESOURCES);
                }
                Ok(Self(crate::object::VendorObject::new(raw, |api, raw| {
                    if let Some(release) = api.$release {
                        // SAFETY: the reference belongs to the cell, which releases it once.
                        unsafe { release(raw) };
                    }
                })))
            }
        }

        impl crate::handles::Handle for $name {
            type Raw = $kind;

            fn of(cell: std::sync::Arc<crate::object::VendorObject>) -> Self {
                Self(cell)
            }

            fn cell(&self) -> &std::sync::Arc<crate::object::VendorObject> {
                &self.0
            }

            fn raw(&self) -> $kind {
                self.0.raw()
            }
        }
    };
}
pub(crate) use handle;

handle! {
    /// A context of one session.
    Context(cl_context) by clReleaseContext
}
handle! {
    /// A command queue, with profiling.
    Queue(cl_command_queue) by clReleaseCommandQueue
}
handle! {
    /// A buffer or a region of one.
    Memory(cl_mem) by clReleaseMemObject
}
handle! {
    /// The event that completes with an enqueued command.
    Event(cl_event) by clReleaseEvent
}

impl Context {
    /// Makes a context of these devices, which are of one platform.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(devices: &[DeviceId]) -> ClResult<Self> {
        let context = Self::own(create_context(devices)?, opencl_sys::CL_SUCCESS)?;
        if let (true, Some(device)) = (object::is_on(), devices.first().copied()) {
            let devices = devices.to_vec();
            object::remember(context.cell(), Kind::Context { device }, move |_| create_context(&devices));
        }
        Ok(context)
    }
}

impl Queue {
    /// Makes a queue for a device of the context, with these properties and profiling.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(context: &Context, device: DeviceId, properties: u64) -> ClResult<Self> {
        let queue = Self::unremembered(context, device, properties)?;
        let context = context.cell().clone();
        object::remember(queue.cell(), Kind::Other, move |_| create_queue(&context, device, properties));
        Ok(queue)
    }

    /// Makes a queue for temporary use, which a reconfiguration does not make again.
    ///
    /// # Errors
    /// The vendor's error.
    pub(crate) fn unremembered(context: &Context, device: DeviceId, properties: u64) -> ClResult<Self> {
        Self::own(create_queue(context.cell(), device, properties)?, opencl_sys::CL_SUCCESS)
    }

    /// Sends the enqueued commands to the device.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn flush(&self) -> ClResult<()> {
        // SAFETY: the queue is live.
        check(unsafe { call!(clFlush(self.raw())) })
    }
}

impl Memory {
    /// Makes a buffer of `size` bytes. Its content is undefined and may be another tenant's bytes.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn new(context: &Context, flags: u64, size: usize) -> ClResult<Self> {
        Self::buffer(context, flags, size, None)
    }

    fn buffer(context: &Context, flags: u64, size: usize, bytes: Option<&[u8]>) -> ClResult<Self> {
        let memory = Self::own(create_buffer(context.cell(), flags, size, bytes)?, opencl_sys::CL_SUCCESS)?;
        let context = context.cell().clone();
        let kind = Kind::Buffer { context: context.clone(), size };
        object::remember(memory.cell(), kind, move |bytes| create_buffer(&context, flags, size, bytes));
        Ok(memory)
    }

    /// Makes a buffer with a copy of these bytes.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn with_contents(context: &Context, flags: u64, bytes: &[u8]) -> ClResult<Self> {
        Self::buffer(context, flags, bytes.len(), Some(bytes))
    }

    /// Makes a buffer of the region of `size` bytes from `origin`.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn sub(&self, flags: u64, origin: usize, size: usize) -> ClResult<Self> {
        let parent = self.cell().clone();
        let region = Self::own(create_region(&parent, flags, origin, size)?, opencl_sys::CL_SUCCESS)?;
        object::remember(region.cell(), Kind::Other, move |_| create_region(&parent, flags, origin, size));
        Ok(region)
    }
}

fn create_context(devices: &[DeviceId]) -> ClResult<cl_context> {
    let raw: Vec<_> = devices.iter().map(|device| device.0).collect();
    let count = u32::try_from(raw.len()).map_err(|_| ClError::INVALID_VALUE)?;
    let mut status = 0;
    // SAFETY: `raw` has `count` live devices, and no callback is passed.
    let context = unsafe {
        call!(clCreateContext(ptr::null(), count, raw.as_ptr(), None, ptr::null_mut(), &raw mut status))
    };
    check(status).map(|()| context)
}

fn create_queue(context: &VendorObject, device: DeviceId, properties: u64) -> ClResult<cl_command_queue> {
    let mut status = 0;
    let properties = properties | CL_QUEUE_PROFILING_ENABLE;
    // SAFETY: context and device are live.
    let queue =
        unsafe { call!(clCreateCommandQueue(context.alive()?, device.0, properties, &raw mut status)) };
    check(status).map(|()| queue)
}

/// Makes a buffer with `bytes`, whose number must be `size`, or with undefined content.
fn create_buffer(context: &VendorObject, flags: u64, size: usize, bytes: Option<&[u8]>) -> ClResult<cl_mem> {
    let mut status = 0;
    let (flags, host) = match bytes {
        Some(bytes) if bytes.len() == size => {
            (flags | opencl_sys::CL_MEM_COPY_HOST_PTR, bytes.as_ptr().cast_mut().cast())
        }
        Some(_) => return Err(ClError::INVALID_VALUE),
        None => (flags, ptr::null_mut()),
    };
    // SAFETY: the context is live. The vendor reads `size` bytes, which exist, before the call returns, or none.
    let memory = unsafe { call!(clCreateBuffer(context.alive()?, flags, size, host, &raw mut status)) };
    check(status).map(|()| memory)
}

fn create_region(parent: &VendorObject, flags: u64, origin: usize, size: usize) -> ClResult<cl_mem> {
    let mut status = 0;
    let region = cl_buffer_region { origin, size };
    // SAFETY: the parent is live, and the region has the type that CL_BUFFER_CREATE_TYPE_REGION takes.
    let memory = unsafe {
        call!(clCreateSubBuffer(
            parent.alive()?,
            flags,
            CL_BUFFER_CREATE_TYPE_REGION,
            (&raw const region).cast(),
            &raw mut status
        ))
    };
    check(status).map(|()| memory)
}

impl Event {
    /// Takes over the event of a command.
    pub(crate) fn of_command(raw: cl_event, status: i32) -> ClResult<Self> {
        let event = Self::own(raw, status)?;
        object::remember_event(event.cell());
        Ok(event)
    }

    /// The execution status: 3 (queued) to 0 (complete); negative if the command failed.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn status(&self) -> ClResult<i32> {
        if let Some(past) = self.cell().past() {
            return Ok(past);
        }
        let mut status: i32 = 0;
        // SAFETY: the event is live, and the answer is an int.
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

    /// Whether the event's command has ended.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.status().is_ok_and(|status| status <= opencl_sys::CL_COMPLETE)
    }

    /// Blocks until the command has ended.
    ///
    /// # Errors
    /// The vendor's error, -14 if the command failed.
    pub fn wait(&self) -> ClResult<()> {
        if let Some(past) = self.cell().past() {
            // CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, as the vendor returns for an event that failed.
            return if past < 0 { Err(ClError(-14)) } else { Ok(()) };
        }
        let raw = self.raw();
        // SAFETY: the array has one live event.
        check(unsafe { call!(clWaitForEvents(1, &raw const raw)) })
    }
}
