//! The memory of a command ring. It is mapped like a segment, but messages name no ranges of it.

use crate::memory::mapping::Mapping;
use fpga_net::futex;
use fpga_protocol::segments::PAGE_BYTES;
use fpga_ring::{Direction, Layout, Memory};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The mapped words of a ring.
#[derive(Debug)]
pub(crate) struct RingMemory(Mapping);

impl RingMemory {
    /// Maps a descriptor from the manager, after checking that it has the layout's size and can't shrink.
    pub(crate) fn new(fd: &OwnedFd, layout: Layout) -> io::Result<Self> {
        let bytes = (layout.words() * size_of::<AtomicU64>()) as u64;
        let bytes = usize::try_from(bytes.next_multiple_of(PAGE_BYTES)).map_err(io::Error::other)?;
        Mapping::new(fd, bytes).map(Self)
    }

    /// Sleeps on the flag of a direction's reader while the flag is `ticket`, for at most `longest`.
    pub(crate) fn sleep(&self, layout: Layout, direction: Direction, ticket: u32, longest: Duration) {
        if let Some(flag) = self.0.futex(layout.reader_flag(direction)) {
            futex::sleep(flag, ticket, longest);
        }
    }

    /// Wakes all threads that sleep on the flag of a direction's reader.
    pub(crate) fn wake_all(&self, layout: Layout, direction: Direction) {
        if let Some(flag) = self.0.futex(layout.reader_flag(direction)) {
            futex::wake_all(flag);
        }
    }
}

impl Memory for RingMemory {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}
