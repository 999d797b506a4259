//! The memory of a command ring. It is mapped like a segment, but messages name no ranges of it.

use crate::memory::mapping::Mapping;
use fpga_protocol::segments::PAGE_BYTES;
use fpga_ring::{Layout, Memory};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::AtomicU64;

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
}

impl Memory for RingMemory {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}
