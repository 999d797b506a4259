//! The bytes of commands between the program's memory and the manager. They travel in the message, through shared
//! memory, or in chunks, and always without the gaps between rows.

use crate::error::{ClError, Result};
use crate::memory::host_memory::{HostSource, HostTarget, Shadow};
use crate::memory::pitches::{Pitches, Scatter};
use crate::memory::segments::Range;
use crate::objects::event::{Event, Uses};
use crate::objects::queue::Queue;
use crate::wire::outgoing::Upload;
use fpga_protocol::limits::MAX_INLINE_BYTES;
use fpga_protocol::v1::{self, command::Operation, data::Form};
use std::sync::Arc;

impl Queue {
    /// Enqueues a command that carries `data`. `uses` are the command's other uses; `operation` makes the command
    /// from the form in which the data travels.
    pub(super) fn send(
        self: &Arc<Self>,
        command_type: u32,
        data: HostSource,
        uses: Uses,
        wait: Vec<u64>,
        operation: impl FnOnce(v1::Data) -> Operation,
    ) -> Result<Arc<Event>> {
        let id = self.session().new_id();
        let (data, uses) = self.carry(id, data, uses)?;
        let (event, sent) = self.append(id, command_type, operation(data), uses, wait)?;
        self.after(sent);
        Ok(event)
    }

    /// Calls [`Self::send`] with the bytes of data that has gaps.
    pub(super) fn send_rows(
        self: &Arc<Self>,
        command_type: u32,
        (data, pitches): (HostSource, Pitches),
        uses: Uses,
        wait: Vec<u64>,
        operation: impl FnOnce(v1::Data) -> Operation,
    ) -> Result<Arc<Event>> {
        if pitches.is_tight() {
            return self.send(command_type, data, uses, wait, operation);
        }
        let packed = HostSource::owned(pitches.pack(&data)).awaited(data.is_awaited());
        self.send(command_type, packed, uses, wait, operation)
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
        let large = target.len() > MAX_INLINE_BYTES;
        let range =
            if large { self.session().shared_memory(target.len(), target.is_awaited()) } else { None };
        let operation = operation(range.as_ref().map(Range::message));
        self.submit(command_type, operation, Uses { target: Some(target), range, ..uses }, wait)
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
        } else if let Some(range) = self.session().shared_memory(data.len(), data.is_awaited()) {
            if !range.write_at(0, &data) {
                return Err(ClError::OUT_OF_RESOURCES);
            }
            let form = Form::Segment(range.message());
            uses.range = Some(range);
            form
        } else {
            let upload = Upload::new(id, data);
            let form = Form::Transfer(v1::Transfer { id, length: upload.length });
            uses.upload = Some(Arc::new(upload));
            form
        };
        Ok((v1::Data { form: Some(form) }, uses))
    }
}
