//! Memory that a session shares with its client on the same node: sealed memfds, mapped here and passed over.
//!
//! The client may change any byte at any time. So nothing here is ever parsed or hashed in place: ranges come in
//! messages and are checked; the vendor copies from and to them, and what a call needs is copied first. The size can't
//! change (seals), so that touching a segment never fails. A segment stays mapped until the last command that uses it
//! has ended; then its pages are given back, whoever still has its descriptor: what the client touches after that is the
//! client's memory.

mod mapping;
mod probe;
mod ring_memory;
mod side;

pub use mapping::Slice;
pub use probe::works_in_shared_memory;
pub use ring_memory::RingMemory;
pub use side::{Key, Side, Sides};

use crate::governor::{Budget, Lasting};
use crate::quotas::Charge;
use bytes::Bytes;
use fpga_protocol::segments::{MAX_SEGMENTS, RangeError, SizeError, check_range, check_size};
use fpga_protocol::v1;
use mapping::Mapping;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The segments of one session.
#[derive(Debug)]
pub struct Segments {
    by_id: HashMap<u64, Arc<Segment>>,
    /// Whose lasting bytes they are.
    budget: Budget,
}

/// Mapped memory, and its place on the accounts until its pages are given back.
#[derive(Debug)]
struct Segment {
    mapping: Mapping,
    _lasting: Lasting,
    _charge: Option<Charge>,
}

/// Why there is no new segment.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The id can't be used; the client breaks the protocol.
    #[error("segment id {0} is 0 or in use")]
    Id(u64),
    /// Nobody gets one of that size.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The session or the manager has given what it may.
    #[error("no memory is left to share")]
    Limit,
    /// The system refuses.
    #[error("the system gives no shared memory: {0}")]
    System(#[from] io::Error),
}

impl Segments {
    /// None yet; they will be this session's.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { by_id: HashMap::new(), budget }
    }

    /// Makes a segment of zeroes, which keeps the charge for it; the descriptor is the client's.
    ///
    /// # Errors
    /// [`CreateError`].
    pub fn create(&mut self, id: u64, bytes: u64, charge: Option<Charge>) -> Result<OwnedFd, CreateError> {
        if id == 0 || self.by_id.contains_key(&id) {
            return Err(CreateError::Id(id));
        }
        let size = check_size(bytes)?;
        if self.by_id.len() >= MAX_SEGMENTS {
            return Err(CreateError::Limit);
        }
        let lasting = self.budget.lasting(bytes).ok_or(CreateError::Limit)?;
        let (mapping, fd) = Mapping::create(size)?;
        let segment = Segment { mapping, _lasting: lasting, _charge: charge };
        self.by_id.insert(id, Arc::new(segment));
        Ok(fd)
    }

    /// The id names nothing from now on; commands keep what they use.
    pub fn release(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    /// What a range names, for the vendor to copy from or to.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn slice(&self, range: &v1::SegmentRange) -> Result<Slice, RangeError> {
        let segment = self.by_id.get(&range.segment).ok_or(RangeError::Unknown(range.segment))?;
        let (offset, len) = check_range(range, segment.mapping.len())?;
        Ok(Slice::new(segment.clone(), offset, len))
    }

    /// A copy of what a range holds now: whatever the client does to the segment later, this stays.
    ///
    /// # Errors
    /// [`RangeError`].
    pub fn copy(&self, range: &v1::SegmentRange) -> Result<Bytes, RangeError> {
        self.slice(range).map(|slice| slice.copy().into())
    }
}

impl Default for Segments {
    /// None, of nobody's.
    fn default() -> Self {
        Self::new(Budget::default())
    }
}

#[cfg(test)]
mod tests;
