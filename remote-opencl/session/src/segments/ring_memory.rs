//! The memory of a session's command ring: a memfd like that of a segment, but without an id, so that no message
//! can refer to a range of it.

use super::CreateError;
use super::mapping::Mapping;
use crate::governor::{Budget, Lasting};
use fpga_protocol::segments::PAGE_BYTES;
use fpga_ring::{Layout, Memory};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
}

impl Memory for RingMemory {
    type Word = AtomicU64;

    fn words(&self) -> &[AtomicU64] {
        self.mapping.words()
    }
}
