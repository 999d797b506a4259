//! A buffer's bytes in shared memory: as long as no command uses the buffer they are this process's to read and write,
//! without a message to the manager; otherwise what touches them is a command in its queue's order.

#[cfg(test)]
mod model;
mod ownership;

use crate::host_memory::{HostSource, HostTarget};
use crate::segments::Range;
use crate::session::Session;
use crate::sync::lock;
use ownership::{Reads, Users};
use std::sync::Mutex;

/// Smaller buffers are not worth the pages, unless the application wants host memory.
pub(crate) const SMALLEST: usize = 64 << 10;

/// Where a buffer lies, and who uses it.
#[derive(Debug)]
pub(crate) struct Storage {
    range: Range,
    /// Locked while bytes are copied.
    users: Mutex<Users>,
    reads: Mutex<Reads>,
}

impl Storage {
    /// Storage of `len` bytes with this content, zeroes without it; `None` where the buffer has to lie with the manager.
    pub(crate) fn new(session: &Session, len: usize, content: Option<&HostSource>) -> Option<Self> {
        let range = session.storage(len)?;
        match content {
            Some(content) => {
                range.write_at(0, content).then_some(())?;
            }
            None => range.zero(),
        }
        Some(Self { range, users: Mutex::default(), reads: Mutex::default() })
    }

    /// For the message that creates the buffer.
    pub(crate) fn message(&self) -> fpga_protocol::v1::SegmentRange {
        self.range.message()
    }

    /// A command uses the buffer from now on.
    pub(crate) fn begin_use(&self) {
        lock(&self.users).begin();
    }

    /// It has ended.
    pub(crate) fn end_use(&self) {
        lock(&self.users).end();
    }

    /// Writes at once if no command uses the buffer.
    pub(crate) fn write_if_idle(&self, offset: usize, source: &HostSource) -> bool {
        lock(&self.users).if_none(|| self.range.write_at(offset, source))
    }

    /// Reads at once if no command uses the buffer.
    pub(crate) fn read_if_idle(&self, offset: usize, target: &mut HostTarget) -> bool {
        lock(&self.users).if_none(|| self.range.read_at(offset, target))
    }

    /// As [`Self::write_if_idle`], of several parts with their offsets.
    pub(crate) fn write_parts_if_idle(&self, parts: impl Iterator<Item = (usize, HostSource)>) -> bool {
        let mut parts = parts;
        lock(&self.users).if_none(|| parts.all(|(offset, source)| self.range.write_at(offset, &source)))
    }

    /// As [`Self::read_if_idle`], of several parts with their offsets.
    pub(crate) fn read_parts_if_idle(&self, parts: impl Iterator<Item = (usize, HostTarget)>) -> bool {
        let mut parts = parts;
        lock(&self.users)
            .if_none(|| parts.all(|(offset, mut target)| self.range.read_at(offset, &mut target)))
    }

    /// Reads now: what orders that is the caller's.
    pub(crate) fn read(&self, offset: usize, target: &mut HostTarget) -> bool {
        self.range.read_at(offset, target)
    }

    /// A read in place has been enqueued.
    pub(crate) fn begin_read(&self, queue: u64, event: u64) {
        lock(&self.reads).begin(queue, event);
    }

    /// It has ended; the user event that others wait for.
    pub(crate) fn end_read(&self, event: u64) -> Option<u64> {
        lock(&self.reads).end(event)
    }

    /// Adds to a wait list what the reads that haven't ended will set; `new_event` makes that where there is none yet.
    pub(crate) fn wait_for_reads(&self, wait: &mut Vec<u64>, new_event: impl Fn() -> Option<u64>) {
        lock(&self.reads).precede(wait, new_event);
    }

    /// The memory itself, for maps.
    pub(crate) fn memory(&self) -> Option<HostTarget> {
        self.range.memory()
    }
}
