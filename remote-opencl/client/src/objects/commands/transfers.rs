//! Writes and reads of buffers: at once if the buffer lies in shared memory and is idle, else by a command.

use super::parts::{Host, Parts, is_long};
use crate::base::clock::now_ns;
use crate::error::Result;
use crate::memory::host_memory::{Awaited, HostSource, HostTarget};
use crate::memory::storage::Storage;
use crate::objects::buffer::{Buffer, InUse, note_equal};
use crate::objects::event::{Event, Uses};
use crate::objects::in_place::{IN_PLACE_FROM, InPlaceRead};
use crate::objects::queue::Queue;
use fpga_protocol::v1::{self, command};
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
            note_equal(command_type, [buffer], data.addresses());
            return Ok(event);
        }
        let range = self.shared_memory_for(data.len(), data.is_awaited());
        if range.is_none() && is_long(data.len()) {
            let host = Host::Source(data);
            return self.in_parts(&Parts { command_type, buffer, offset, host, wait });
        }
        let uses = Uses { range, buffers: vec![InUse::new(buffer)], ..Uses::default() };
        self.send_through(command_type, data.into(), uses, wait, |data| {
            command::Operation::WriteBuffer(v1::WriteBuffer {
                buffer: buffer.id(),
                offset: offset as u64,
                data: Some(data),
            })
        })
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
            note_equal(command_type, [buffer], Some(target.addresses()));
            return Ok(event);
        }
        let worthwhile = target.is_awaited() == Awaited::Yes || target.len() >= IN_PLACE_FROM;
        if worthwhile && self.is_in_order() && buffer.storage().is_some() {
            let id = self.session().new_id();
            let in_place = Some(InPlaceRead::new(buffer, offset, id));
            let uses =
                Uses { target: Some(target), in_place, buffers: vec![InUse::new(buffer)], ..Uses::default() };
            let operation = command::Operation::Marker(v1::Marker {});
            let (event, sent) = self.append(id, command_type, operation, uses, wait)?;
            self.after(sent);
            return Ok(event);
        }
        let range = self.shared_memory_for(target.len(), target.is_awaited());
        if range.is_none() && is_long(target.len()) {
            let host = Host::Target(target);
            return self.in_parts(&Parts { command_type, buffer, offset, host, wait });
        }
        let (size, buffers) = (target.len() as u64, vec![InUse::new(buffer)]);
        let uses = Uses { target: Some(target), range, buffers, ..Uses::default() };
        let operation = command::Operation::ReadBuffer(v1::ReadBuffer {
            buffer: buffer.id(),
            offset: offset as u64,
            size,
            into: uses.range_message(),
            memory_at_start: false,
        });
        self.submit(command_type, operation, uses, wait)
    }

    /// Executes a command on a buffer in shared memory at once, and returns its event. Returns `None` if an earlier
    /// command comes first in the queue's order, or `at_once` finds the buffer in use; then the command must go to
    /// the manager.
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
        Some(Event::of_executed(self, command_type, started))
    }

    /// Whether a command without a wait list that is enqueued now would have to wait for an earlier command.
    pub(super) fn something_comes_first(&self) -> bool {
        let first = if self.is_in_order() { self.progress().last() } else { self.progress().open_barrier() };
        first.is_some()
    }
}
