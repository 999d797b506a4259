//! Commands for a vendor's queue. No call waits, and host memory stays alive until its command has ended.

mod enqueued;
mod host_memory;
mod images;
mod profile;
mod rects;

pub use enqueued::Enqueued;
pub use profile::CommandProfile;
pub use rects::Rect;

use crate::api::call;
use crate::handles::{Event, Handle as _, Memory, Queue};
use crate::kernel::Kernel;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::cl_event;
use std::ptr;

/// The handles of a wait list. The caller's borrow keeps the events alive.
pub(crate) struct WaitList(Vec<cl_event>);

impl WaitList {
    pub(crate) fn new(events: &[&Event]) -> Self {
        Self(events.iter().map(|event| event.raw()).collect())
    }

    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    pub(crate) fn pointer(&self) -> *const cl_event {
        if self.0.is_empty() { ptr::null() } else { self.0.as_ptr() }
    }
}

impl Queue {
    /// Enqueues a kernel with its current arguments. `global` has 1 to 3 entries, and `offset` and `local` as many
    /// if given.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn launch(
        &self,
        kernel: &Kernel,
        offset: Option<&[usize]>,
        global: &[usize],
        local: Option<&[usize]>,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let dimensions = global.len();
        let fits = |sizes: Option<&[usize]>| sizes.is_none_or(|sizes| sizes.len() == dimensions);
        if !(1..=3).contains(&dimensions) {
            return Err(ClError::INVALID_WORK_DIMENSION);
        }
        if !fits(offset) || !fits(local) {
            return Err(ClError::INVALID_VALUE);
        }
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: queue, kernel and events are live, and the arrays have `dimensions` entries or are NULL.
        let status = unsafe {
            call!(clEnqueueNDRangeKernel(
                self.raw(),
                kernel.raw(),
                u32::try_from(dimensions).unwrap_or(0),
                offset.map_or(ptr::null(), <[usize]>::as_ptr),
                global.as_ptr(),
                local.map_or(ptr::null(), <[usize]>::as_ptr),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }

    /// Enqueues a copy between buffers.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn copy(
        &self,
        (source, source_offset): (&Memory, usize),
        (target, target_offset): (&Memory, usize),
        size: usize,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, and the vendor checks the ranges.
        let status = unsafe {
            call!(clEnqueueCopyBuffer(
                self.raw(),
                source.raw(),
                target.raw(),
                source_offset,
                target_offset,
                size,
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }

    /// Enqueues a fill of `size` bytes from `offset` with the pattern.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn fill(
        &self,
        memory: &Memory,
        pattern: &[u8],
        offset: usize,
        size: usize,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live, and the pattern is copied before the call returns.
        let status = unsafe {
            call!(clEnqueueFillBuffer(
                self.raw(),
                memory.raw(),
                pattern.as_ptr().cast(),
                pattern.len(),
                offset,
                size,
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }

    /// Enqueues a marker. It completes with its wait list, or with all commands before it if the list is empty.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn marker(&self, wait: &[&Event]) -> ClResult<Enqueued> {
        self.mark(wait).map(Enqueued::new)
    }

    fn mark(&self, wait: &[&Event]) -> ClResult<Event> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live.
        let status = unsafe {
            call!(clEnqueueMarkerWithWaitList(self.raw(), wait.len(), wait.pointer(), &raw mut event))
        };
        Event::of_command(event, status)
    }

    /// Enqueues a barrier: a marker before which no later command of the queue starts.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn barrier(&self, wait: &[&Event]) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live.
        let status = unsafe {
            call!(clEnqueueBarrierWithWaitList(self.raw(), wait.len(), wait.pointer(), &raw mut event))
        };
        Ok(Enqueued::new(Event::of_command(event, status)?))
    }
}
