//! Commands between buffers and host memory: memory of this process, in the pieces of messages, or memory shared
//! with the client.

use super::WaitList;
use super::enqueued::{Enqueued, Host, Target};
use crate::api::call;
use crate::handles::{Event, Handle as _, Memory, Queue};
use crate::shared_bytes::SharedBytes;
use bytes::Bytes;
use fpga_protocol::cl_error::{ClError, ClResult};
use opencl_sys::CL_FALSE;
use std::mem::forget;
use std::ptr;
use std::sync::Arc;

impl Queue {
    /// Enqueues writes of the pieces, one after another from `offset`.
    ///
    /// # Errors
    /// The vendor's error if the first piece is refused. A later refusal is in [`Enqueued::outcome`].
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

    /// Enqueues a write from shared memory to `offset`.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn write_shared(
        &self,
        memory: &Memory,
        offset: usize,
        slice: SharedBytes,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live. The vendor reads the slice until the event has ended, and `Enqueued` keeps
        // the slice. If the client changes its bytes meanwhile, that changes the written data and nothing else.
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

    /// Enqueues a read from `offset` into the whole slice of shared memory.
    ///
    /// # Errors
    /// The vendor's error.
    pub fn read_shared(
        &self,
        memory: &Memory,
        offset: usize,
        slice: SharedBytes,
        wait: &[&Event],
    ) -> ClResult<Enqueued> {
        let wait = WaitList::new(wait);
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live. The vendor writes the slice until the event has ended, `Enqueued` keeps the
        // slice, and this process has no reference into it.
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

    fn write_piece(&self, memory: &Memory, offset: usize, data: &Bytes, wait: &WaitList) -> ClResult<Event> {
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live. The vendor reads `data` until the event has ended, and `Enqueued` keeps it.
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

    /// Enqueues reads of `size` bytes from `offset` in parts of up to `piece` bytes. [`Enqueued::take_piece`]
    /// returns each part after its end.
    ///
    /// # Errors
    /// The vendor's error if the first part is refused, and `CL_OUT_OF_HOST_MEMORY` (-6) if there is no memory for
    /// it. A later refusal is in [`Enqueued::outcome`].
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
        bytes.try_reserve_exact(size).map_err(|_| ClError::OUT_OF_HOST_MEMORY)?;
        let mut event = ptr::null_mut();
        // SAFETY: all handles are live. The vendor writes `size` bytes, for which `bytes` has room, until the event
        // has ended. `Enqueued` keeps the allocation, which never moves.
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

    /// Makes a command of the enqueued parts. `refused` is the error of the next part, if that one was refused.
    fn together(&self, mut parts: Vec<Event>, refused: Option<ClError>, host: Host) -> ClResult<Enqueued> {
        if let (1, None) = (parts.len(), refused)
            && let Some(event) = parts.pop()
        {
            return Ok(Enqueued { event: Arc::new(event), parts, refused, host });
        }
        if parts.is_empty() {
            return Err(refused.unwrap_or(ClError::INVALID_VALUE));
        }
        let all: Vec<&Event> = parts.iter().collect();
        match self.mark(&all) {
            Ok(event) => Ok(Enqueued { event: Arc::new(event), parts, refused, host }),
            Err(error) => {
                // The parts run, so their memory is leaked: it is unknown when they end.
                forget(host);
                Err(error)
            }
        }
    }
}
