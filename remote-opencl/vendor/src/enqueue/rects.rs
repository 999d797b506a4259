//! Commands on rectangles of bytes in buffers. In host memory a rectangle has no gaps.

use super::{Enqueued, WaitList};
use crate::api::call;
use crate::handles::{Event, Handle as _, Memory, Queue};
use crate::rects::{Extent, Layout};
use crate::shared_bytes::SharedBytes;
use bytes::Bytes;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::CL_FALSE;
use std::ptr;

/// A rectangle of a buffer. A layout is always made together with its extent, and fits it.
#[derive(Debug, Clone, Copy)]
pub struct Rect<'a> {
    /// The buffer.
    pub memory: &'a Memory,
    /// The position of the rectangle in the buffer.
    pub layout: Layout,
    /// The size of the rectangle.
    pub extent: Extent,
}

impl Queue {
    /// Enqueues a write of a rectangle. The caller has checked that `bytes` has the rectangle's bytes.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn write_rect(&self, rect: Rect<'_>, bytes: Bytes, wait: &[&Event]) -> ClResult<Enqueued> {
        let address = bytes.as_ptr();
        // SAFETY: `bytes` has the rectangle's bytes and is kept until the event has ended.
        let event = unsafe { self.write_rect_from(rect, address, wait)? };
        Ok(Enqueued::reading(event, bytes))
    }

    /// Enqueues a write of a rectangle from shared memory. The caller has checked that `slice` has the rectangle's
    /// bytes.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn write_rect_shared(
        &self,
        rect: Rect<'_>,
        slice: SharedBytes,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let address = slice.address().cast_const().cast();
        // SAFETY: the slice has the rectangle's bytes and is kept until the event has ended.
        let event = unsafe { self.write_rect_from(rect, address, wait)? };
        Ok(Enqueued::shared(event, slice))
    }

    /// # Safety
    /// `address` is valid for reads of the rectangle's bytes until the event has ended.
    unsafe fn write_rect_from(&self, rect: Rect<'_>, address: *const u8, wait: &[&Event]) -> ClResult<Event> {
        let Rect { memory, layout, extent } = rect;
        let (wait, host) = (WaitList::new(wait), Layout::tight(extent));
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, and the arrays have three entries. The caller promises the rest.
        let status = unsafe {
            call!(clEnqueueWriteBufferRect(
                self.raw(),
                memory.raw(),
                CL_FALSE,
                layout.origin.as_ptr(),
                host.origin.as_ptr(),
                extent.size.as_ptr(),
                layout.row_pitch,
                layout.slice_pitch,
                host.row_pitch,
                host.slice_pitch,
                address.cast(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Event::of_command(event, status)
    }

    /// Enqueues a read of a rectangle. [`Enqueued::take_piece`] with index 0 returns all its bytes.
    ///
    /// # Errors
    /// The vendor's error; `CL_OUT_OF_HOST_MEMORY` (-6) if there is no memory.
    pub fn read_rect(&self, rect: Rect<'_>, wait: &[&Event]) -> ClResult<Enqueued> {
        let size = rect.extent.bytes();
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| ClError::OUT_OF_HOST_MEMORY)?;
        let address = bytes.as_mut_ptr();
        // SAFETY: `bytes` has room for the rectangle and is kept, unmoved, until the event has ended.
        let event = unsafe { self.read_rect_to(rect, address, wait)? };
        Ok(Enqueued::writing(event, bytes, size))
    }

    /// Enqueues a read of a rectangle into shared memory. The caller has checked that `slice` has room for the
    /// rectangle.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn read_rect_shared(
        &self,
        rect: Rect<'_>,
        slice: SharedBytes,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let address = slice.address().cast();
        // SAFETY: the slice has room for the rectangle and is kept until the event has ended.
        let event = unsafe { self.read_rect_to(rect, address, wait)? };
        Ok(Enqueued::shared(event, slice))
    }

    /// # Safety
    /// `address` is valid for writes of the rectangle's bytes until the event has ended.
    unsafe fn read_rect_to(&self, rect: Rect<'_>, address: *mut u8, wait: &[&Event]) -> ClResult<Event> {
        let Rect { memory, layout, extent } = rect;
        let (wait, host) = (WaitList::new(wait), Layout::tight(extent));
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, and the arrays have three entries. The caller promises the rest.
        let status = unsafe {
            call!(clEnqueueReadBufferRect(
                self.raw(),
                memory.raw(),
                CL_FALSE,
                layout.origin.as_ptr(),
                host.origin.as_ptr(),
                extent.size.as_ptr(),
                layout.row_pitch,
                layout.slice_pitch,
                host.row_pitch,
                host.slice_pitch,
                address.cast(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Event::of_command(event, status)
    }

    /// Enqueues a copy of a rectangle to another buffer, or to another place in the same one.
    ///
    /// # Errors
    /// The vendor's error, such as `CL_MEM_COPY_OVERLAP`.
    pub fn copy_rect(
        &self,
        source: Rect<'_>,
        (target, layout): (&Memory, Layout),
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, and the arrays have three entries.
        let status = unsafe {
            call!(clEnqueueCopyBufferRect(
                self.raw(),
                source.memory.raw(),
                target.raw(),
                source.layout.origin.as_ptr(),
                layout.origin.as_ptr(),
                source.extent.size.as_ptr(),
                source.layout.row_pitch,
                source.layout.slice_pitch,
                layout.row_pitch,
                layout.slice_pitch,
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }
}
