//! Memory that a session shares with its client on the same node: sealed memfds, mapped here and passed over.
//!
//! The client may change any byte at any time. So nothing here is ever parsed or hashed in place: ranges come in
//! messages and are checked; the vendor copies from and to them, and what a call needs is copied first. The size can't
//! change (seals), so that touching a segment never fails. A segment stays mapped until the last command that uses it
//! has ended.

mod mapping;
mod probe;
mod ring_memory;
mod side;

pub use mapping::Slice;
pub use probe::works_in_shared_memory;
pub use ring_memory::RingMemory;
pub use side::{Key, Side, Sides};

use crate::quotas::Charge;
use bytes::Bytes;
use fpga_protocol::segments::{MAX_SEGMENTS, RangeError, SizeError, check_range, check_size};
use fpga_protocol::v1;
use mapping::Mapping;
use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Most bytes of segments of one session.
pub const MAX_SESSION_BYTES: u64 = 4 << 30;

/// The bytes of segments that a manager gives to its sessions. Clones share the account.
#[derive(Debug, Clone)]
pub struct Pool(Arc<Account>);

#[derive(Debug)]
struct Account {
    taken: AtomicU64,
    limit: u64,
}

/// Bytes of a pool; back when dropped.
#[derive(Debug)]
struct Share {
    pool: Pool,
    bytes: u64,
}

/// The segments of one session.
#[derive(Debug)]
pub struct Segments {
    by_id: HashMap<u64, Arc<Segment>>,
    pool: Pool,
    session_bytes: Pool,
}

/// Mapped memory, and its place on the accounts.
#[derive(Debug)]
struct Segment {
    mapping: Mapping,
    _shares: [Share; 2],
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

impl Pool {
    /// A pool of so many bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self(Arc::new(Account { taken: AtomicU64::new(0), limit }))
    }

    /// Half of the memory that this process may use: the machine's, or less in a container. The pages of segments are
    /// the manager's, which touches them first.
    #[must_use]
    pub fn of_memory() -> Self {
        Self::new(mapping::usable_bytes() / 2)
    }

    /// How many bytes are given.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.0.taken.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: u64) -> Option<Share> {
        let more = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= self.0.limit);
        let taken = self.0.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        taken.is_ok().then(|| Share { pool: self.clone(), bytes })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.pool.0.taken.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Segments {
    /// None yet; they will come from this pool.
    #[must_use]
    pub fn new(pool: Pool) -> Self {
        Self { by_id: HashMap::new(), pool, session_bytes: Pool::new(MAX_SESSION_BYTES) }
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
        let of_session = self.session_bytes.take(bytes).ok_or(CreateError::Limit)?;
        let of_manager = self.pool.take(bytes).ok_or(CreateError::Limit)?;
        let (mapping, fd) = Mapping::create(size)?;
        let segment = Segment { mapping, _shares: [of_session, of_manager], _charge: charge };
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
    /// None, and none to come.
    fn default() -> Self {
        Self::new(Pool::new(0))
    }
}

#[cfg(test)]
mod tests;
