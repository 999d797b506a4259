//! The bytes of commands between the program's memory and the manager. They travel in the message, through shared
//! memory, or in chunks, and always without the gaps between rows.

use super::late::Takes;
use crate::error::{ClError, Result};
use crate::memory::host_bytes::HostBytes;
use crate::memory::host_memory::{Awaited, HostSource, HostTarget, Shadow};
use crate::memory::pitches::{Pitches, Scatter};
use crate::memory::segments::Range as SharedRange;
use crate::objects::buffer::note_equal;
use crate::objects::event::{Event, Uses};
use crate::objects::queue::Queue;
use crate::wire::outgoing::Upload;
use fpga_protocol::limits::MAX_INLINE_BYTES;
use fpga_protocol::v1::{self, command::Operation, data::Form};
use std::sync::Arc;

impl Queue {
    /// Enqueues a command that carries bytes of host memory, through shared memory if there is some.
    pub(super) fn send(
        self: &Arc<Self>,
        command_type: u32,
        bytes: impl Into<HostBytes>,
        uses: Uses,
        wait: Vec<u64>,
        operation: impl FnOnce(v1::Data) -> Operation,
    ) -> Result<Arc<Event>> {
        let bytes = bytes.into();
        let uses = Uses { range: self.shared_memory_for(bytes.len(), bytes.is_awaited()), ..uses };
        self.send_through(command_type, bytes, uses, wait, operation)
    }

    /// Enqueues a command that carries bytes of host memory, through the range among its uses. They are taken now, unless
    /// that makes a difference (see [`super::late`]). `operation` makes the command from the form in which the data travels.
    pub(super) fn send_through(
        self: &Arc<Self>,
        command_type: u32,
        bytes: HostBytes,
        uses: Uses,
        wait: Vec<u64>,
        operation: impl FnOnce(v1::Data) -> Operation,
    ) -> Result<Arc<Event>> {
        let late = bytes.addresses().and_then(|addresses| self.is_late(&wait, &addresses, Takes::Bytes));
        let Some(late) = late else {
            note_equal(command_type, uses.buffers.iter().map(|buffer| &buffer.0), bytes.addresses());
            let id = self.session().new_id();
            let (data, uses) = self.carry(id, bytes.packed(), uses)?;
            let (event, sent) = self.append(id, command_type, operation(data), uses, wait)?;
            self.after(sent);
            return Ok(event);
        };
        self.enqueue_late(command_type, late, uses, wait, |id, uses| {
            (operation(late_data(id, &bytes, uses)), Some(bytes))
        })
    }

    /// Shared memory for bytes that don't fit into a message.
    pub(super) fn shared_memory_for(&self, len: usize, awaited: Awaited) -> Option<SharedRange> {
        (len > MAX_INLINE_BYTES).then(|| self.session().shared_memory(len, awaited)).flatten()
    }

    /// Enqueues a command that fetches as many bytes as `target` has. `uses` are the command's other uses;
    /// `operation` makes the command from the range of shared memory through which the bytes come, if any.
    pub(super) fn fetch(
        self: &Arc<Self>,
        command_type: u32,
        target: HostTarget,
        uses: Uses,
        wait: Vec<u64>,
        operation: impl FnOnce(Option<v1::SegmentRange>) -> Operation,
    ) -> Result<Arc<Event>> {
        let range = self.shared_memory_for(target.len(), target.is_awaited());
        let uses = Uses { target: Some(target), range, ..uses };
        self.submit(command_type, operation(uses.range_message()), uses, wait)
    }

    /// Calls [`Self::fetch`] for a target with gaps.
    pub(super) fn fetch_rows(
        self: &Arc<Self>,
        command_type: u32,
        (target, pitches): (HostTarget, Pitches),
        uses: Uses,
        wait: Vec<u64>,
        operation: impl FnOnce(Option<v1::SegmentRange>) -> Operation,
    ) -> Result<Arc<Event>> {
        if pitches.is_tight() {
            return self.fetch(command_type, target, uses, wait, operation);
        }
        let packed = Shadow::allocate(pitches.bytes()).ok_or(ClError::OUT_OF_HOST_MEMORY)?;
        let packed = packed.awaited(target.is_awaited());
        let uses = Uses { scatter: Some(Scatter { target, pitches }), ..uses };
        self.fetch(command_type, packed, uses, wait, operation)
    }

    /// The form in which the data of the command with this event id travels, and the command's uses including that
    /// form's.
    fn carry(&self, id: u64, data: HostSource, mut uses: Uses) -> Result<(v1::Data, Uses)> {
        let form = if data.len() <= MAX_INLINE_BYTES {
            Form::Inline(data.capture())
        } else if let Some(range) = &uses.range {
            if !range.write_at(0, &data) {
                return Err(ClError::OUT_OF_RESOURCES);
            }
            Form::Segment(range.message())
        } else {
            let upload = Upload::new(id, data);
            let form = Form::Transfer(v1::Transfer { id, length: upload.length });
            uses.upload = Some(Arc::new(upload));
            form
        };
        Ok((v1::Data { form: Some(form) }, uses))
    }
}

/// The form in which the data of a command with this event id travels if the command takes its bytes late.
pub(super) fn late_data(id: u64, bytes: &HostBytes, uses: &Uses) -> v1::Data {
    let form = match &uses.range {
        Some(range) => Form::Segment(range.message()),
        None => Form::Later(v1::Transfer { id, length: bytes.len() as u64 }),
    };
    v1::Data { form: Some(form) }
}
