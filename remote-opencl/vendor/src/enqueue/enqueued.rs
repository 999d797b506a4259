//! An enqueued command, and the host memory that the vendor uses until the command has ended.

use crate::handles::Event;
use crate::shared_bytes::SharedBytes;
use bytes::Bytes;
use fpga_protocol::cl_error::{ClError, ClResult};
use std::mem::{forget, take};
use std::sync::Arc;

/// A command in a vendor's queue, with the host memory that it reads or writes.
///
/// If it is dropped before its command has ended, the memory is leaked, since the vendor's threads may still use
/// it.
#[derive(Debug)]
pub struct Enqueued {
    /// The event that completes with the whole command.
    pub(super) event: Arc<Event>,
    /// The events of the parts; empty if the command is a single part.
    pub(super) parts: Vec<Event>,
    /// The error if a later part was refused after the first one had been enqueued.
    pub(super) refused: Option<ClError>,
    pub(super) host: Host,
}

/// The host memory of a command, which lives as long as the vendor may use it.
#[derive(Debug)]
pub(super) enum Host {
    Nothing,
    /// The vendor reads these pieces.
    Source {
        #[expect(dead_code, reason = "kept for the vendor, who has its address")]
        pieces: Vec<Bytes>,
    },
    /// The vendor writes these targets, one for each part.
    Targets(Vec<Target>),
    /// The vendor reads or writes this shared memory.
    Shared {
        #[expect(dead_code, reason = "kept for the vendor, who has its address")]
        slice: SharedBytes,
    },
}

/// Room for `size` bytes. The length is 0 until the bytes are written.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) bytes: Vec<u8>,
    pub(super) size: usize,
}

impl Enqueued {
    pub(crate) fn new(event: Event) -> Self {
        Self::with(event, Host::Nothing)
    }

    /// A command that reads `bytes`.
    pub(crate) fn reading(event: Event, bytes: Bytes) -> Self {
        Self::with(event, Host::Source { pieces: vec![bytes] })
    }

    /// A command that writes `size` bytes into the capacity of `bytes`.
    pub(crate) fn writing(event: Event, bytes: Vec<u8>, size: usize) -> Self {
        Self::with(event, Host::Targets(vec![Target { bytes, size }]))
    }

    /// A command that reads or writes shared memory.
    pub(crate) fn shared(event: Event, slice: SharedBytes) -> Self {
        Self::with(event, Host::Shared { slice })
    }

    pub(super) fn with(event: Event, host: Host) -> Self {
        Self { event: Arc::new(event), parts: Vec::new(), refused: None, host }
    }

    /// The event that completes with the whole command.
    #[must_use]
    pub fn event(&self) -> &Arc<Event> {
        &self.event
    }

    /// The events of the parts; empty if the command is a single part.
    #[must_use]
    pub fn parts(&self) -> &[Event] {
        &self.parts
    }

    /// The bytes that a part of a read has written, once after that part has completed.
    pub fn take_piece(&mut self, index: usize) -> Option<Bytes> {
        let event = if self.parts.is_empty() { &*self.event } else { self.parts.get(index)? };
        if event.status() != Ok(opencl_sys::CL_COMPLETE) {
            return None;
        }
        let Host::Targets(targets) = &mut self.host else { return None };
        let target = targets.get_mut(index).filter(|target| target.bytes.capacity() >= target.size)?;
        let mut bytes = take(&mut target.bytes);
        // SAFETY: the capacity is at least `size`, and the read of this part has completed and wrote as many bytes.
        unsafe { bytes.set_len(target.size) };
        Some(Bytes::from(bytes))
    }

    /// Whether the vendor has accepted all parts.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.refused.is_none()
    }

    /// Whether the command is a single part, so that its event has the outcome of the command.
    #[must_use]
    pub fn is_one_event(&self) -> bool {
        self.refused.is_none() && self.parts.is_empty()
    }

    /// The outcome of the command.
    ///
    /// # Errors
    /// The error of the command; -9999 if it has not ended.
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
