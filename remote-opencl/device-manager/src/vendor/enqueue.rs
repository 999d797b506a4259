//! Commands into a vendor queue: none of these calls waits, and host memory stays alive until its command has ended.

use super::api::call;
use super::{ClError, ClResult, Event, Kernel, Memory, Queue, check};
use crate::segments::Slice;
use bytes::Bytes;
use opencl_sys::{
    CL_FALSE, CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_QUEUED, CL_PROFILING_COMMAND_START,
    CL_PROFILING_COMMAND_SUBMIT, cl_event,
};
use std::mem::{forget, take};
use std::ptr;
use std::sync::Arc;

/// A command in a vendor queue, with the host memory that it reads or writes.
///
/// Dropped before its command has ended, it leaks that memory: better than the vendor's threads using freed bytes.
#[derive(Debug)]
pub struct Enqueued {
    /// Completes with the whole command.
    event: Arc<Event>,
    /// The pieces, where there are several.
    parts: Vec<Event>,
    /// Set when a later piece was refused after the first had been taken.
    refused: Option<ClError>,
    host: Host,
}

#[derive(Debug)]
enum Host {
    Nothing,
    /// Read by the vendor.
    Source {
        #[expect(dead_code, reason = "kept for the vendor, who has its address")]
        pieces: Vec<Bytes>,
    },
    /// Written by the vendor, one for each piece.
    Targets(Vec<Target>),
    /// Read or written by the vendor, in shared memory.
    Shared {
        #[expect(dead_code, reason = "kept for the vendor, who has its address")]
        slice: Slice,
    },
}

/// Room for `size` bytes, whose length is 0 until they are there.
#[derive(Debug)]
struct Target {
    bytes: Vec<u8>,
    size: usize,
}

/// Moments of a command on the vendor's clock, in ns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Profile {
    /// Enqueued.
    pub queued: u64,
    /// Given to the device.
    pub submitted: u64,
    /// Started.
    pub started: u64,
    /// Ended.
    pub ended: u64,
}

impl Profile {
    /// Some runtimes leave the first moments of commands without work, such as markers, at 0: these were queued when they
    /// started, or the time between would be that since the machine's start.
    fn plausible(self) -> Self {
        if self.queued != 0 && self.queued <= self.started {
            return self;
        }
        Self { queued: self.started, submitted: self.started, ..self }
    }
}

/// Handles of a wait list; the borrow keeps the events alive.
pub(super) struct WaitList(Vec<cl_event>);

impl WaitList {
    pub(super) fn new(events: &[&Event]) -> Self {
        Self(events.iter().map(|event| event.raw()).collect())
    }

    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn pointer(&self) -> *const cl_event {
        if self.0.is_empty() { ptr::null() } else { self.0.as_ptr() }
    }
}

impl Queue {
    /// Runs a kernel with the arguments that it has now. `global` has 1 to 3 entries, the others as many if any.
    ///
    /// # Errors
    /// The vendor's.
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
            return Err(ClError(opencl_sys::CL_INVALID_WORK_DIMENSION));
        }
        if !fits(offset) || !fits(local) {
            return Err(ClError(opencl_sys::CL_INVALID_VALUE));
        }
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: queue, kernel and events are live; the arrays have `dimensions` entries or are NULL.
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

    /// Writes the pieces one after the other from `offset`.
    ///
    /// # Errors
    /// The vendor's, if not even the first piece is taken; a later refusal shows in [`Enqueued::outcome`].
    pub fn write(
        &self,
        memory: &Memory,
        offset: usize,
        pieces: Vec<Bytes>,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let list = WaitList::new(wait);
        let mut at = offset;
        let mut parts: Vec<Event> = Vec::with_capacity(pieces.len());
        let mut refused = None;
        for piece in &pieces {
            match self.write_piece(memory, at, piece, &list) {
                Ok(event) => parts.push(event),
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
            at = at.saturating_add(piece.len());
        }
        self.together(parts, refused, Host::Source { pieces })
    }

    /// Writes from shared memory to `offset`.
    ///
    /// # Errors
    /// The vendor's.
    pub fn write_shared(
        &self,
        memory: &Memory,
        offset: usize,
        slice: Slice,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live. The vendor reads the slice until the event has ended: `Enqueued` keeps it. That
        // the client may change its bytes meanwhile changes what is written, nothing else.
        let status = unsafe {
            call!(clEnqueueWriteBuffer(
                self.raw(),
                memory.raw(),
                CL_FALSE,
                offset,
                slice.len(),
                slice.address().cast_const().cast(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::with(Event::of_command(event, status)?, Host::Shared { slice }))
    }

    /// Reads from `offset` into shared memory, as much as the slice has.
    ///
    /// # Errors
    /// The vendor's.
    pub fn read_shared(
        &self,
        memory: &Memory,
        offset: usize,
        slice: Slice,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live. The vendor writes the slice until the event has ended: `Enqueued` keeps it, and
        // nobody here has a reference into it.
        let status = unsafe {
            call!(clEnqueueReadBuffer(
                self.raw(),
                memory.raw(),
                CL_FALSE,
                offset,
                slice.len(),
                slice.address().cast(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok(Enqueued::with(Event::of_command(event, status)?, Host::Shared { slice }))
    }

    /// A command of the pieces that were taken, and the reason why the next one was not.
    fn together(&self, mut parts: Vec<Event>, refused: Option<ClError>, host: Host) -> ClResult<Enqueued> {
        if let (1, None) = (parts.len(), refused)
            && let Some(event) = parts.pop()
        {
            return Ok(Enqueued { event: Arc::new(event), parts, refused, host });
        }
        if parts.is_empty() {
            return Err(refused.unwrap_or(ClError(opencl_sys::CL_INVALID_VALUE)));
        }
        let all: Vec<&Event> = parts.iter().collect();
        match self.mark(&all) {
            Ok(event) => Ok(Enqueued { event: Arc::new(event), parts, refused, host }),
            Err(error) => {
                // The pieces run: their memory has to outlive them, and nobody will tell when that is.
                forget(host);
                Err(error)
            }
        }
    }

    fn write_piece(&self, memory: &Memory, offset: usize, data: &Bytes, wait: &WaitList) -> ClResult<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live. The vendor reads `data` until the event has ended: `Enqueued` keeps it.
        let status = unsafe {
            call!(clEnqueueWriteBuffer(
                self.raw(),
                memory.raw(),
                CL_FALSE,
                offset,
                data.len(),
                data.as_ptr().cast(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Event::of_command(event, status)
    }

    /// Reads `size` bytes from `offset` in pieces of up to `piece` bytes, which [`Enqueued::take_piece`] has as they end.
    ///
    /// # Errors
    /// The vendor's, and -6 where there is no memory, if not even the first piece is taken.
    pub fn read(
        &self,
        memory: &Memory,
        offset: usize,
        size: usize,
        piece: usize,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut parts = Vec::new();
        let mut targets = Vec::new();
        let mut refused = None;
        for at in (0..size).step_by(piece.max(1)) {
            match self.read_piece(memory, offset + at, piece.min(size - at), &wait) {
                Ok((event, target)) => {
                    parts.push(event);
                    targets.push(target);
                }
                Err(error) => {
                    refused = Some(error);
                    break;
                }
            }
        }
        self.together(parts, refused, Host::Targets(targets))
    }

    fn read_piece(
        &self,
        memory: &Memory,
        offset: usize,
        size: usize,
        wait: &WaitList,
    ) -> ClResult<(Event, Target)> {
        let mut bytes: Vec<u8> = Vec::new();
        bytes.try_reserve_exact(size).map_err(|_| ClError(opencl_sys::CL_OUT_OF_HOST_MEMORY))?;
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live. The vendor writes `size` bytes, which `bytes` has room for, until the event
        // has ended: `Enqueued` keeps the allocation, which never moves.
        let status = unsafe {
            call!(clEnqueueReadBuffer(
                self.raw(),
                memory.raw(),
                CL_FALSE,
                offset,
                size,
                bytes.as_mut_ptr().cast(),
                wait.len(),
                wait.pointer(),
                &raw mut event
            ))
        };
        Ok((Event::of_command(event, status)?, Target { bytes, size }))
    }

    /// Copies between buffers.
    ///
    /// # Errors
    /// The vendor's.
    pub fn copy(
        &self,
        (source, source_offset): (&Memory, usize),
        (target, target_offset): (&Memory, usize),
        size: usize,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live; the vendor checks the ranges.
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

    /// Fills `size` bytes from `offset` with the pattern.
    ///
    /// # Errors
    /// The vendor's.
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
        // SAFETY: all handles are live; the pattern is copied before the call returns.
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

    /// A marker: completes with its wait list, or with all before it where that is empty.
    ///
    /// # Errors
    /// The vendor's.
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

    /// A barrier: as a marker, and nothing after it in its queue starts before.
    ///
    /// # Errors
    /// The vendor's.
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

impl Enqueued {
    pub(super) fn new(event: Event) -> Self {
        Self::with(event, Host::Nothing)
    }

    /// A command that reads these bytes.
    pub(super) fn reading(event: Event, bytes: Bytes) -> Self {
        Self::with(event, Host::Source { pieces: vec![bytes] })
    }

    /// A command that writes `size` bytes, for which there is room.
    pub(super) fn writing(event: Event, bytes: Vec<u8>, size: usize) -> Self {
        Self::with(event, Host::Targets(vec![Target { bytes, size }]))
    }

    /// A command that reads or writes shared memory.
    pub(super) fn shared(event: Event, slice: Slice) -> Self {
        Self::with(event, Host::Shared { slice })
    }

    fn with(event: Event, host: Host) -> Self {
        Self { event: Arc::new(event), parts: Vec::new(), refused: None, host }
    }

    /// What completes with the command.
    #[must_use]
    pub fn event(&self) -> &Arc<Event> {
        &self.event
    }

    /// The events of its pieces, where there are several.
    #[must_use]
    pub fn parts(&self) -> &[Event] {
        &self.parts
    }

    /// What a piece of a read gave, once and as soon as that piece has completed.
    pub fn take_piece(&mut self, index: usize) -> Option<Bytes> {
        let event = if self.parts.is_empty() { &*self.event } else { self.parts.get(index)? };
        if event.status() != Ok(opencl_sys::CL_COMPLETE) {
            return None;
        }
        let Host::Targets(targets) = &mut self.host else { return None };
        let target = targets.get_mut(index).filter(|target| target.bytes.capacity() >= target.size)?;
        let mut bytes = take(&mut target.bytes);
        // SAFETY: the capacity is `size` or more, and the read of this piece, which has completed, wrote as many bytes.
        unsafe { bytes.set_len(target.size) };
        Some(Bytes::from(bytes))
    }

    /// Whether its event is all there is: the command has succeeded when that has.
    #[must_use]
    pub fn is_one_event(&self) -> bool {
        self.refused.is_none() && self.parts.is_empty()
    }

    /// After the command has ended: whether it ended well.
    ///
    /// # Errors
    /// The command's, and -9999 where it has not ended.
    pub fn outcome(&self) -> ClResult<()> {
        const NOT_ENDED: ClError = ClError(-9999);
        if let Some(error) = self.refused {
            return Err(error);
        }
        for event in self.parts.iter().chain([&*self.event]) {
            match event.status()? {
                opencl_sys::CL_COMPLETE => {}
                running if running > 0 => return Err(NOT_ENDED),
                error => return Err(ClError(error)),
            }
        }
        Ok(())
    }

    /// The vendor's measurement; nothing where it has none.
    #[must_use]
    pub fn profile(&self) -> Option<Profile> {
        let first = self.parts.first().unwrap_or(&self.event);
        let last = self.parts.last().unwrap_or(&self.event);
        let profile = Profile {
            queued: first.moment(CL_PROFILING_COMMAND_QUEUED)?,
            submitted: first.moment(CL_PROFILING_COMMAND_SUBMIT)?,
            started: first.moment(CL_PROFILING_COMMAND_START)?,
            ended: last.moment(CL_PROFILING_COMMAND_END)?,
        };
        Some(profile.plausible())
    }

    fn has_ended(&self) -> bool {
        self.event.has_ended() && self.parts.iter().all(Event::has_ended)
    }
}

impl Drop for Enqueued {
    fn drop(&mut self) {
        if !matches!(self.host, Host::Nothing) && !self.has_ended() {
            forget(std::mem::replace(&mut self.host, Host::Nothing));
        }
    }
}

impl Event {
    fn moment(&self, param: u32) -> Option<u64> {
        let read = || {
            let mut moment = 0_u64;
            // SAFETY: the event is live, the answer is a 64-bit number.
            check(unsafe {
                call!(clGetEventProfilingInfo(
                    self.raw(),
                    param,
                    size_of::<u64>(),
                    (&raw mut moment).cast(),
                    ptr::null_mut()
                ))
            })?;
            Ok(moment)
        };
        let result: ClResult<u64> = read();
        result.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_without_a_queuing_moment_was_queued_when_it_started() {
        let whole = Profile { queued: 5, submitted: 6, started: 7, ended: 8 };
        assert_eq!(whole.plausible(), whole);
        let bare = Profile { queued: 0, submitted: 0, ..whole };
        assert_eq!(bare.plausible(), Profile { queued: 7, submitted: 7, started: 7, ended: 8 });
    }
}
