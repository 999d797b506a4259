//! A buffer's bytes in shared memory: as long as no command uses the buffer they are this process's to read and write,
//! without a message to the manager; otherwise what touches them is a command in its queue's order.

use crate::host_memory::{HostSource, HostTarget};
use crate::segments::Range;
use crate::session::Session;
use crate::sync::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// Smaller buffers are not worth the pages, unless the application wants host memory.
pub(crate) const SMALLEST: usize = 64 << 10;

/// Where a buffer lies, and how many commands use it.
#[derive(Debug)]
pub(crate) struct Storage {
    range: Range,
    /// Commands that haven't ended, of the buffer and of its sub-buffers. Locked while bytes are copied: a command that
    /// somebody enqueues meanwhile comes after.
    uses: Mutex<usize>,
    /// Reads in place that haven't ended, by event, and what those wait for that come after it.
    reads: Mutex<BTreeMap<u64, Option<u64>>>,
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
        Some(Self { range, uses: Mutex::new(0), reads: Mutex::default() })
    }

    /// For the message that creates the buffer.
    pub(crate) fn message(&self) -> fpga_protocol::v1::SegmentRange {
        self.range.message()
    }

    /// A command uses the buffer from now on.
    pub(crate) fn begin_use(&self) {
        *lock(&self.uses) += 1;
    }

    /// It has ended.
    pub(crate) fn end_use(&self) {
        *lock(&self.uses) -= 1;
    }

    /// Writes at once if no command uses the buffer.
    pub(crate) fn write_if_idle(&self, offset: usize, source: &HostSource) -> bool {
        let uses = lock(&self.uses);
        *uses == 0 && self.range.write_at(offset, source)
    }

    /// Reads at once if no command uses the buffer.
    pub(crate) fn read_if_idle(&self, offset: usize, target: &mut HostTarget) -> bool {
        let uses = lock(&self.uses);
        *uses == 0 && self.range.read_at(offset, target)
    }

    /// Reads now: what orders that is the caller's.
    pub(crate) fn read(&self, offset: usize, target: &mut HostTarget) -> bool {
        self.range.read_at(offset, target)
    }

    /// A read in place has been enqueued.
    pub(crate) fn begin_read(&self, event: u64) {
        lock(&self.reads).insert(event, None);
    }

    /// It has ended; the user event that others wait for.
    pub(crate) fn end_read(&self, event: u64) -> Option<u64> {
        lock(&self.reads).remove(&event).flatten()
    }

    /// Adds to a wait list what the reads that haven't ended will set; `new_event` makes that where there is none yet.
    pub(crate) fn wait_for_reads(&self, wait: &mut Vec<u64>, new_event: impl Fn() -> Option<u64>) {
        for user_event in lock(&self.reads).values_mut() {
            *user_event = user_event.or_else(&new_event);
            wait.extend(*user_event);
        }
    }

    /// The memory itself, for maps.
    pub(crate) fn memory(&self) -> Option<HostTarget> {
        self.range.memory()
    }
}
