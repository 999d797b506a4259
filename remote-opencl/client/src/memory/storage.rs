//! A buffer's bytes in shared memory. While no command uses the buffer, this process reads and writes the bytes
//! without a message to the manager; otherwise an access is a command in its queue's order.

#[cfg(test)]
mod model;
mod ownership;

use crate::base::sync::lock;
use crate::memory::host_memory::{HostSource, HostTarget};
use crate::memory::segments::Range;
use ownership::{Reads, Users};
use std::sync::Mutex;

/// Smallest buffer in shared memory, in bytes, at a manager that demands whole pages. Smaller ones aren't worth the
/// pages, unless the application wants host memory.
pub(crate) const SMALLEST: usize = 64 << 10;

/// The location of a buffer, and the commands that use it.
#[derive(Debug)]
pub(crate) struct Storage {
    range: Range,
    /// Locked while bytes are copied.
    users: Mutex<Users>,
    reads: Mutex<Reads>,
}

impl Storage {
    /// Storage in `range` with the given content, or zeroes; `None` if the content doesn't fit.
    pub(crate) fn new(range: Range, content: Option<&HostSource>) -> Option<Self> {
        match content {
            Some(content) => {
                range.write_at(0, content).then_some(())?;
            }
            None => range.zero(),
        }
        Some(Self { range, users: Mutex::default(), reads: Mutex::default() })
    }

    /// The range for the message that creates the buffer.
    pub(crate) fn message(&self) -> fpga_protocol::v1::SegmentRange {
        self.range.message()
    }

    /// Notes that a command uses the buffer from now on.
    pub(crate) fn begin_use(&self) {
        lock(&self.users).begin();
    }

    /// Notes that a command which used the buffer has ended.
    pub(crate) fn end_use(&self) {
        lock(&self.users).end();
    }

    /// Writes at once if no command uses the buffer. Returns false if it did nothing.
    pub(crate) fn write_if_idle(&self, offset: usize, source: &HostSource) -> bool {
        lock(&self.users).if_none(|| self.range.write_at(offset, source))
    }

    /// Reads at once if no command uses the buffer. Returns false if it did nothing.
    pub(crate) fn read_if_idle(&self, offset: usize, target: &mut HostTarget) -> bool {
        lock(&self.users).if_none(|| self.range.read_at(offset, target))
    }

    /// Writes several parts, each to its offset, like [`Self::write_if_idle`].
    pub(crate) fn write_parts_if_idle(&self, parts: impl Iterator<Item = (usize, HostSource)>) -> bool {
        let mut parts = parts;
        lock(&self.users).if_none(|| parts.all(|(offset, source)| self.range.write_at(offset, &source)))
    }

    /// Reads several parts, each from its offset, like [`Self::read_if_idle`].
    pub(crate) fn read_parts_if_idle(&self, parts: impl Iterator<Item = (usize, HostTarget)>) -> bool {
        let mut parts = parts;
        lock(&self.users)
            .if_none(|| parts.all(|(offset, mut target)| self.range.read_at(offset, &mut target)))
    }

    /// Reads now. The caller has ordered the read with respect to commands.
    pub(crate) fn read(&self, offset: usize, target: &mut HostTarget) -> bool {
        self.range.read_at(offset, target)
    }

    /// Notes that a read in place was enqueued.
    pub(crate) fn begin_read(&self, queue: u64, event: u64) {
        lock(&self.reads).begin(queue, event);
    }

    /// Notes that a read in place has ended. Returns the user event that later commands wait for, if any.
    pub(crate) fn end_read(&self, event: u64) -> Option<u64> {
        lock(&self.reads).end(event)
    }

    /// Adds to a wait list the user events of reads in place that haven't ended. `new_event` creates the user event
    /// of a read that has none yet.
    pub(crate) fn wait_for_reads(&self, wait: &mut Vec<u64>, new_event: impl Fn() -> Option<u64>) {
        lock(&self.reads).precede(wait, new_event);
    }

    /// The buffer's memory, for maps.
    pub(crate) fn memory(&self) -> Option<HostTarget> {
        self.range.memory()
    }
}
