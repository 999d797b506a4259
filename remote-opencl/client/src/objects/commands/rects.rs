//! Rectangles of bytes: one command each, whose bytes travel without gaps.

use super::Operation;
use crate::cl;
use crate::error::Result;
use crate::memory::host_bytes::HostBytes;
use crate::memory::host_memory::{HostSource, HostTarget};
use crate::memory::pitches::Pitches;
use crate::memory::rect::{Layout, Stretch, check_copy_inside, stretches, wide};
use crate::memory::storage::Storage;
use crate::objects::buffer::{Buffer, InUse};
use crate::objects::event::{Event, Uses};
use crate::objects::queue::Queue;
use fpga_protocol::v1::{self, command};
use std::sync::Arc;

/// A wait list: the ids of the events that have not completed, and all events.
type WaitList<'a> = (Vec<u64>, &'a [Arc<Event>]);

impl Queue {
    pub(super) fn write_rect(
        self: &Arc<Self>,
        buffer: &Arc<Buffer>,
        [layout, host]: [Layout; 2],
        region: [usize; 3],
        data: HostSource,
        (wait, list): WaitList<'_>,
    ) -> Result<Arc<Event>> {
        let rows = || {
            stretches(host, layout, region)
                .filter_map(|row| Some((row.to, data.part(row.from - host.start(), row.length)?)))
        };
        let at_once = |(storage, origin): (&Storage, usize)| {
            storage.write_parts_if_idle(rows().map(|(at, part)| (origin + at, part)))
        };
        if let Some(event) = self.in_place(cl::COMMAND_WRITE_BUFFER_RECT, buffer, &wait, at_once) {
            return Ok(event);
        }
        if !self.session().takes_rects() {
            return self
                .row_by_row(list, rows().map(|(offset, data)| Operation::Write { buffer, offset, data }));
        }
        let uses = Uses { buffers: vec![InUse::new(buffer)], ..Uses::default() };
        let data = HostBytes::with_pitches(data, Pitches::of_rect(host, region));
        self.send(cl::COMMAND_WRITE_BUFFER_RECT, data, uses, wait, |data| {
            command::Operation::WriteBufferRect(v1::WriteBufferRect {
                buffer: buffer.id(),
                layout: Some(layout.message()),
                region: wide(region),
                data: Some(data),
            })
        })
    }

    pub(super) fn read_rect(
        self: &Arc<Self>,
        buffer: &Arc<Buffer>,
        [layout, host]: [Layout; 2],
        region: [usize; 3],
        target: HostTarget,
        (wait, list): WaitList<'_>,
    ) -> Result<Arc<Event>> {
        let rows = || {
            stretches(layout, host, region)
                .filter_map(|row| Some((row.from, target.part(row.to - host.start(), row.length)?)))
        };
        let at_once = |(storage, origin): (&Storage, usize)| {
            storage.read_parts_if_idle(rows().map(|(at, part)| (origin + at, part)))
        };
        if let Some(event) = self.in_place(cl::COMMAND_READ_BUFFER_RECT, buffer, &wait, at_once) {
            return Ok(event);
        }
        if !self.session().takes_rects() {
            let rows = rows().map(|(offset, target)| Operation::Read { buffer, offset, target });
            return self.row_by_row(list, rows);
        }
        let uses = Uses { buffers: vec![InUse::new(buffer)], ..Uses::default() };
        let target = (target, Pitches::of_rect(host, region));
        self.fetch_rows(cl::COMMAND_READ_BUFFER_RECT, target, uses, wait, |into| {
            command::Operation::ReadBufferRect(v1::ReadBufferRect {
                buffer: buffer.id(),
                layout: Some(layout.message()),
                region: wide(region),
                into,
            })
        })
    }

    pub(super) fn copy_rect(
        self: &Arc<Self>,
        (source, from): (&Arc<Buffer>, Layout),
        (target, to): (&Arc<Buffer>, Layout),
        region: [usize; 3],
        (wait, list): WaitList<'_>,
    ) -> Result<Arc<Event>> {
        if Arc::ptr_eq(source, target) {
            check_copy_inside(from, to, region)?;
        }
        if !self.session().takes_rects() {
            let row = |Stretch { from, to, length }| Operation::Copy {
                source,
                target,
                source_offset: from,
                target_offset: to,
                size: length,
            };
            return self.row_by_row(list, stretches(from, to, region).map(row));
        }
        let operation = command::Operation::CopyBufferRect(v1::CopyBufferRect {
            source: source.id(),
            source_layout: Some(from.message()),
            target: target.id(),
            target_layout: Some(to.message()),
            region: wide(region),
        });
        let uses = Uses { buffers: vec![InUse::new(source), InUse::new(target)], ..Uses::default() };
        self.submit(cl::COMMAND_COPY_BUFFER_RECT, operation, uses, wait)
    }

    /// Enqueues a command for each row, for a manager without commands on rectangles, and returns an event for all
    /// of them. Each command has the wait list, so that all fail if an event in it fails.
    fn row_by_row<'a>(
        self: &Arc<Self>,
        list: &[Arc<Event>],
        rows: impl Iterator<Item = Operation<'a>>,
    ) -> Result<Arc<Event>> {
        let in_order = self.is_in_order();
        let mut events = Vec::new();
        for row in rows {
            let event = self.enqueue(row, list)?;
            if in_order {
                events.clear();
            }
            events.push(event);
        }
        match events.as_slice() {
            // The last event of an in-order queue, or the only one.
            [only] => Ok(Arc::clone(only)),
            several => self.enqueue(Operation::Marker, several),
        }
    }
}
