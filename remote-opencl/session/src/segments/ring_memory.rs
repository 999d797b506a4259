//! The memory of a session's command ring: a memfd like that of a segment, but without an id, so that no message
//! can refer to a range of it.

use super::CreateError;
use super::mapping::Mapping;
use crate::governor::{Budget, Lasting};
use fpga_net::futex;
use fpga_protocol::segments::PAGE_BYTES;
use fpga_ring::{Direction, Layout, Memory};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Mapped words, charged to the tenant's account.
#[derive(Debug)]
pub struct RingMemory {
    mapping: Mapping,
    _lasting: Lasting,
}

impl RingMemory {
    /// Makes memory of zeros for a ring. Returns the descriptor for the client.
    ///
    /// # Errors
    /// [`CreateError`], if no memory is left or the system refuses.
    pub fn create(budget: &Budget, layout: Layout) -> Result<(Arc<Self>, OwnedFd), CreateError> {
        let bytes = (layout.words() * size_of::<AtomicU64>()) as u64;
        let bytes = bytes.next_multiple_of(PAGE_BYTES);
        let lasting = budget.lasting(bytes).ok_or(CreateError::Limit)?;
        let (mapping, fd) = Mapping::create(fpga_protocol::segments::check_size(bytes)?)?;
        Ok((Arc::new(Self { mapping, _lasting: lasting }), fd))
    }

    /// Sleeps on the flag of a direction's reader while the flag is `ticket`, for at most `longest`.
    pub fn sleep(&self, layout: Layout, direction: Direction, ticket: u32, longest: Duration) {
        if let Some(flag) = self.mapping.futex(layout.reader_flag(direction)) {
            futex::sleep(flag, ticket, longest);
        }
    }

    /// Wakes all threads that sleep on the flag of a direction's reader.
    pub fn wake_all(&self, layout: Layout, direction: Direction) {
        if let Some(flag) = self.mapping.futex(layout.reader_flag(direction)) {
            futex::wake_all(flag);
        }
    }
}

impl Memory for RingMemory {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }
}
