//! Writes and reads of buffers: at once where the buffer's bytes are shared and idle, else through shared memory, in the
//! command itself, or piece by piece.

use super::Queue;
use crate::buffer::{Buffer, InUse};
use crate::cl;
use crate::clock::now_ns;
use crate::error::{ClError, Result};
use crate::event::{Event, Uses};
use crate::host_memory::{HostSource, HostTarget};
use crate::in_place::{IN_PLACE_FROM, InPlaceRead};
use crate::outbox::Upload;
use crate::segments::Range;
use crate::storage::Storage;
use crate::sync::lock;
use fpga_protocol::limits::MAX_INLINE_BYTES;
use fpga_protocol::v1::{self, command, data::Form};
use std::sync::Arc;

impl Queue {
    pub(super) fn write(
        self: &Arc<Self>,
        command_type: u32,
        buffer: &Arc<Buffer>,
        offset: usize,
        data: HostSource,
        wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        let at_once = |(storage, origin): (&Storage, usize)| storage.write_if_idle(origin + offset, &data);
        if let Some(event) = self.in_place(command_type, buffer, &wait, at_once) {
            return Ok(event);
        }
        let id = self.session().new_id();
        let (data, mut uses) = self.carry(id, data)?;
        uses.buffers.push(InUse::new(buffer));
        let operation = command::Operation::WriteBuffer(v1::WriteBuffer {
            buffer: buffer.id(),
            offset: offset as u64,
            data: Some(data),
        });
        let (event, sent) = self.append(id, command_type, operation, uses, wait)?;
        self.after(sent);
        Ok(event)
    }

    /// The data of the command with this event in the form in which it travels, and what that uses.
    pub(super) fn carry(&self, id: u64, data: HostSource) -> Result<(v1::Data, Uses)> {
        let mut uses = Uses::default();
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

    pub(super) fn read(
        self: &Arc<Self>,
        command_type: u32,
        buffer: &Arc<Buffer>,
        offset: usize,
        mut target: HostTarget,
        wait: Vec<u64>,
    ) -> Result<Arc<Event>> {
        let at_once =
            |(storage, origin): (&Storage, usize)| storage.read_if_idle(origin + offset, &mut target);
        if let Some(event) = self.in_place(command_type, buffer, &wait, at_once) {
            return Ok(event);
        }
        let in_order = self.properties & cl::QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0;
        if target.len() >= IN_PLACE_FROM && in_order && buffer.storage().is_some() {
            let id = self.session().new_id();
            let in_place = Some(InPlaceRead::new(buffer, offset, id));
            let uses =
                Uses { target: Some(target), in_place, buffers: vec![InUse::new(buffer)], ..Uses::default() };
            let operation = command::Operation::Marker(v1::Marker {});
            let (event, sent) = self.append(id, command_type, operation, uses, wait)?;
            self.after(sent);
            return Ok(event);
        }
        let large = target.len() > MAX_INLINE_BYTES;
        let range =
            if large { self.session().shared_memory(target.len(), target.is_awaited()) } else { None };
        let operation = command::Operation::ReadBuffer(v1::ReadBuffer {
            buffer: buffer.id(),
            offset: offset as u64,
            size: target.len() as u64,
            into: range.as_ref().map(Range::message),
        });
        let uses = Uses { target: Some(target), range, buffers: vec![InUse::new(buffer)], ..Uses::default() };
        self.submit(command_type, operation, uses, wait)
    }

    /// The event of a command that was carried out here and now, on a buffer in shared memory. Where something comes
    /// before it in the queue's order, or `at_once` finds the buffer in use, it has to go to the manager.
    pub(super) fn in_place(
        self: &Arc<Self>,
        command_type: u32,
        buffer: &Buffer,
        wait: &[u64],
        at_once: impl FnOnce((&Storage, usize)) -> bool,
    ) -> Option<Arc<Event>> {
        let storage = buffer.storage()?;
        if !wait.is_empty() || self.something_comes_first() {
            return None;
        }
        let started = now_ns();
        if !at_once(storage) {
            return None;
        }
        let event = Event::of_command(self, self.session().new_id(), command_type, Uses::default());
        event.completed_locally_since(started);
        Some(event)
    }

    /// Whether a command without a wait list that is enqueued now has to wait for another one.
    fn something_comes_first(&self) -> bool {
        if self.properties & cl::QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE == 0 {
            return self.progress.last().is_some();
        }
        let barrier = lock(&self.last_barrier).upgrade();
        barrier.is_some_and(|barrier| barrier.now() > cl::COMPLETE)
    }
}
