//! Long writes and reads of buffers, for which there is no shared memory. They go in parts, since a manager may not keep all of
//! their bytes. Two parts are under way at a time: a part is held back until the one before the last has ended and the
//! client has its bytes.
//!
//! ```text
//!  queue:  part 0 ── marker 2 ── part 1 ── marker 3 ── part 2 ── marker 4 ── part 3 ── …
//!                       └── completed: the client sends the bytes of part 2, or has those of part 0
//! ```

use super::late::{Gated, Late, Takes};
use super::payload::late_data;
use crate::error::{ClError, Result};
use crate::memory::host_bytes::HostBytes;
use crate::memory::host_memory::{HostSource, HostTarget};
use crate::objects::buffer::{Buffer, InUse};
use crate::objects::event::{Event, Uses};
use crate::objects::queue::Queue;
use fpga_protocol::v1::{self, command::Operation};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Longest transfer without shared memory that goes whole, in bytes.
pub(super) const WHOLE_BYTES: usize = 16 << 20;
/// Length of a part, in bytes: a small share of what managers keep for a tenant, and long against a round trip.
const PART_BYTES: usize = 4 << 20;
/// Number of parts that are under way.
const UNDER_WAY: usize = 2;

/// The host's side of a transfer.
#[derive(Debug)]
pub(super) enum Host {
    /// Bytes for the buffer.
    Source(HostSource),
    /// Where bytes of the buffer go.
    Target(HostTarget),
}

/// A transfer in parts.
#[derive(Debug)]
pub(super) struct Parts<'a> {
    /// Command type of each part.
    pub(super) command_type: u32,
    pub(super) buffer: &'a Arc<Buffer>,
    /// Where the transfer begins in the buffer.
    pub(super) offset: usize,
    pub(super) host: Host,
    pub(super) wait: Vec<u64>,
}

/// When the manager takes memory for the bytes of a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// When the command arrives.
    OnArrival,
    /// When the command starts, which the client holds back until there is room.
    AtStart,
}

/// Whether a transfer that finds no shared memory goes in parts.
pub(super) fn is_long(len: usize) -> bool {
    len > WHOLE_BYTES
}

impl Queue {
    /// Enqueues a transfer in parts, and returns the event of the last one, which completes last.
    pub(super) fn in_parts(self: &Arc<Self>, parts: &Parts<'_>) -> Result<Arc<Event>> {
        let late = match &parts.host {
            Host::Source(source) => {
                source.addresses().and_then(|at| self.is_late(&parts.wait, &at, Takes::Bytes))
            }
            Host::Target(_) => None,
        };
        let givers = late.map(Late::into_givers).unwrap_or_default();
        let mut held = VecDeque::new();
        let mut last: Option<Arc<Event>> = None;
        for number in 0..parts.count() {
            let before = last.iter().map(|event| event.id());
            let event = if number < UNDER_WAY {
                self.part(parts, number, parts.wait.iter().copied().chain(before).collect())?
            } else {
                self.enqueue_gated(held.pop_front().ok_or(ClError::INVALID_VALUE)?, before.collect())?
            };
            if number + UNDER_WAY < parts.count() {
                let late = Late::after(vec![event.id()], givers.clone());
                held.push_back(self.part_held_back(parts, number + UNDER_WAY, late)?);
            }
            last = Some(event);
        }
        last.ok_or(ClError::INVALID_VALUE)
    }

    /// Enqueues one of the first parts.
    fn part(self: &Arc<Self>, parts: &Parts<'_>, number: usize, wait: Vec<u64>) -> Result<Arc<Event>> {
        let range = parts.range(number);
        match parts.bytes(&range)? {
            Host::Source(source) => {
                self.send(parts.command_type, source, parts.uses(), wait, |data| parts.write(&range, data))
            }
            Host::Target(target) => {
                let read = |into| parts.read(&range, into, Memory::OnArrival);
                self.fetch(parts.command_type, target, parts.uses(), wait, read)
            }
        }
    }

    fn part_held_back(self: &Arc<Self>, parts: &Parts<'_>, number: usize, late: Late) -> Result<Gated> {
        let range = parts.range(number);
        match parts.bytes(&range)? {
            Host::Source(source) => {
                let bytes = HostBytes::from(source);
                let through = self.shared_memory_for(bytes.len(), bytes.is_awaited());
                let uses = Uses { range: through, ..parts.uses() };
                self.prepare_late(parts.command_type, late, uses, |id, uses| {
                    (parts.write(&range, late_data(id, &bytes, uses)), Some(bytes))
                })
            }
            Host::Target(target) => {
                let through = self.shared_memory_for(target.len(), target.is_awaited());
                let uses = Uses { range: through, target: Some(target), ..parts.uses() };
                self.prepare_late(parts.command_type, late, uses, |_, uses| {
                    (parts.read(&range, uses.range_message(), Memory::AtStart), None)
                })
            }
        }
    }
}

impl Parts<'_> {
    fn len(&self) -> usize {
        match &self.host {
            Host::Source(source) => source.len(),
            Host::Target(target) => target.len(),
        }
    }

    fn count(&self) -> usize {
        self.len().div_ceil(PART_BYTES)
    }

    /// The bytes of a part, counted from the begin of the transfer.
    fn range(&self, number: usize) -> Range<usize> {
        let begin = number * PART_BYTES;
        begin..self.len().min(begin + PART_BYTES)
    }

    fn bytes(&self, range: &Range<usize>) -> Result<Host> {
        let part = match &self.host {
            Host::Source(source) => source.part(range.start, range.len()).map(Host::Source),
            Host::Target(target) => target.part(range.start, range.len()).map(Host::Target),
        };
        part.ok_or(ClError::INVALID_VALUE)
    }

    fn uses(&self) -> Uses {
        Uses { buffers: vec![InUse::new(self.buffer)], ..Uses::default() }
    }

    fn write(&self, range: &Range<usize>, data: v1::Data) -> Operation {
        let offset = (self.offset + range.start) as u64;
        Operation::WriteBuffer(v1::WriteBuffer { buffer: self.buffer.id(), offset, data: Some(data) })
    }

    fn read(&self, range: &Range<usize>, into: Option<v1::SegmentRange>, memory: Memory) -> Operation {
        let (offset, size) = ((self.offset + range.start) as u64, range.len() as u64);
        let memory_at_start = memory == Memory::AtStart;
        Operation::ReadBuffer(v1::ReadBuffer {
            buffer: self.buffer.id(),
            offset,
            size,
            into,
            memory_at_start,
        })
    }
}
