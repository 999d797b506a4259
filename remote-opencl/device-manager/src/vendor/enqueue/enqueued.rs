//! A command that a vendor queue has taken, and the memory of this process that the vendor works on until it has ended.

use crate::segments::Slice;
use crate::vendor::{ClError, ClResult, Event};
use bytes::Bytes;
use std::mem::{forget, take};
use std::sync::Arc;

/// A command in a vendor queue, with the host memory that it reads or writes.
///
/// Dropped before its command has ended, it leaks that memory: better than the vendor's threads using freed bytes.
#[derive(Debug)]
pub struct Enqueued {
    /// Completes with the whole command.
    pub(super) event: Arc<Event>,
    /// The pieces, where there are several.
    pub(super) parts: Vec<Event>,
    /// Set when a later piece was refused after the first had been taken.
    pub(super) refused: Option<ClError>,
    pub(super) host: Host,
}

/// The memory of a command, which lives as long as the vendor may use it.
#[derive(Debug)]
pub(super) enum Host {
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
pub(super) struct Target {
    pub(super) bytes: Vec<u8>,
    pub(super) size: usize,
}

impl Enqueued {
    pub(in crate::vendor) fn new(event: Event) -> Self {
        Self::with(event, Host::Nothing)
    }

    /// A command that reads these bytes.
    pub(in crate::vendor) fn reading(event: Event, bytes: Bytes) -> Self {
        Self::with(event, Host::Source { pieces: vec![bytes] })
    }

    /// A command that writes `size` bytes, for which there is room.
    pub(in crate::vendor) fn writing(event: Event, bytes: Vec<u8>, size: usize) -> Self {
        Self::with(event, Host::Targets(vec![Target { bytes, size }]))
    }

    /// A command that reads or writes shared memory.
    pub(in crate::vendor) fn shared(event: Event, slice: Slice) -> Self {
        Self::with(event, Host::Shared { slice })
    }

    pub(super) fn with(event: Event, host: Host) -> Self {
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

    /// Whether the vendor has taken all of its pieces.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.refused.is_none()
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
