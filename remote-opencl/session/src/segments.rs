//! Memory that a session shares with its client on the same node: sealed memfds that the manager maps and passes to
//! the client.
//!
//! The client may change any byte at any time. So the manager never parses or hashes the bytes in place: it checks
//! the ranges that messages contain, the vendor copies from and to them, and a call works on a copy. Seals fix the
//! size, so access to a segment never faults. A segment stays mapped until the last command that uses it has ended.
//! Then the manager gives its pages back, even if another process still has the descriptor: pages that the client
//! touches after that are charged to the client.

mod fd_channel;
mod mapping;
mod ring_memory;

pub use fd_channel::{FdChannel, Key};
pub use ring_memory::RingMemory;

use crate::governor::{Budget, Lasting};
use crate::quotas::Charge;
use bytes::Bytes;
use fpga_protocol::segments::{MAX_SEGMENTS, RangeError, SizeError, check_range, check_size};
use fpga_protocol::v1;
use fpga_vendor::SharedBytes;
use mapping::Mapping;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The segments of one session.
#[derive(Debug)]
pub struct Segments {
    by_id: HashMap<u64, Arc<Segment>>,
    /// The account of the segments' bytes.
    budget: Budget,
}

/// Mapped memory, which is on the accounts until its pages are given back.
#[derive(Debug)]
struct Segment {
    mapping: Mapping,
    _lasting: Lasting,
    _charge: Option<Charge>,
}

/// The reason why a segment can't be made.
#[derive(Debug, thiserror::Error)]
pub enum CreateError {
    /// The id can't be used: the client violates the protocol.
    #[error("segment id {0} is 0 or in use")]
    Id(u64),
    /// The size is not allowed.
    #[error(transparent)]
    Size(#[from] SizeError),
    /// The session has its maximum of segments, or no memory is left on the accounts.
    #[error("no memory is left to share")]
    Limit,
    /// The system refused.
    #[error("the system gives no shared memory: {0}")]
    System(#[from] io::Error),
}

impl Segments {
    /// An empty set of segments of a session.
    #[must_use]
    pub fn new(budget: Budget) -> Self {
        Self { by_id: HashMap::new(), budget }
    }

    /// Makes a segment of zeros, which keeps its charge. Returns the descriptor for the client.
    ///
    /// # Errors
    /// [`CreateError`], if the id or the size is not allowed, or no memory is left.
    pub fn create(&mut self, id: u64, bytes: u64, charge: Option<Charge>) -> Result<OwnedFd, CreateError> {
        self.insert(id, bytes, charge, Mapping::create).map(|(_, fd)| fd)
    }

    /// Makes a segment like [`Self::create`] at an address that a client can use, too. Returns the address and the
    /// descriptor.
    ///
    /// # Errors
    /// The errors of [`Self::create`].
    pub fn create_placed(
        &mut self,
        id: u64,
        bytes: u64,
        charge: Option<Charge>,
    ) -> Result<(u64, OwnedFd), CreateError> {
        self.insert(id, bytes, charge, Mapping::create_placed)
    }

    fn insert(
        &mut self,
        id: u64,
        bytes: u64,
        charge: Option<Charge>,
        map: impl FnOnce(usize) -> io::Result<(Mapping, OwnedFd)>,
    ) -> Result<(u64, OwnedFd), CreateError> {
        if id == 0 || self.by_id.contains_key(&id) {
            return Err(CreateError::Id(id));
        }
        let size = check_size(bytes)?;
        if self.by_id.len() >= MAX_SEGMENTS {
            return Err(CreateError::Limit);
        }
        let lasting = self.budget.lasting(bytes).ok_or(CreateError::Limit)?;
        let (mapping, fd) = map(size)?;
        let address = mapping.address();
        let segment = Segment { mapping, _lasting: lasting, _charge: charge };
        self.by_id.insert(id, Arc::new(segment));
        Ok((address, fd))
    }

    /// Removes an id. Commands that use the segment keep it.
    pub fn release(&mut self, id: u64) {
        self.by_id.remove(&id);
    }

    /// The memory of a range, for the vendor to copy from or to.
    ///
    /// # Errors
    /// [`RangeError`], if the segment does not exist or does not contain the range.
    pub fn slice(&self, range: &v1::SegmentRange) -> Result<SharedBytes, RangeError> {
        let segment = self.by_id.get(&range.segment).ok_or(RangeError::Unknown(range.segment))?;
        let (offset, len) = check_range(range, segment.mapping.len())?;
        Ok(Segment::slice(segment, offset, len))
    }

    /// A copy of the memory of a range, which the client can't change later.
    ///
    /// # Errors
    /// [`RangeError`], if the segment does not exist or does not contain the range.
    pub fn copy(&self, range: &v1::SegmentRange) -> Result<Bytes, RangeError> {
        self.slice(range).map(|slice| slice.copy().into())
    }
}

impl Default for Segments {
    /// An empty set of segments without limits.
    fn default() -> Self {
        Self::new(Budget::default())
    }
}

#[cfg(test)]
mod tests;
