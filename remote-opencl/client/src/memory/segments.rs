//! Memory that is shared with a manager on the same node. Bulk data is copied into it or out of it, and messages
//! name the range. If there is none (TCP, descriptors can't be passed, the manager shares no more memory,
//! `FPGA_SHARED_MEMORY=off`) [`Segments::take`] returns `None`, and the data travels in messages.
//!
//! Segments for data in transit stay for the session, since the first touch of a page costs as much as copying it;
//! ranges of them are taken and given back. Buffers of less than a page share pages, in segments of their own. Only
//! this session and its manager have access to a segment.

use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::memory::fd_channel::FdChannel;
use crate::memory::free_ranges::{FreeRanges, TakenRange};
use crate::memory::host_memory::{Awaited, HostSource, HostTarget, MemoryOwner};
use crate::memory::mapping::Mapping;
use fpga_protocol::segments::{MAX_SEGMENT_BYTES, MAX_SEGMENTS, PAGE_BYTES, RANGE_ALIGNMENT, check_address};
use fpga_protocol::v1::{self, call::Method, reply};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot::{self, error::TryRecvError};

/// Size of a page in bytes.
#[expect(clippy::cast_possible_truncation, reason = "4096")]
const PAGE: usize = PAGE_BYTES as usize;

/// The finest unit of ranges that a manager can ask for, in bytes.
#[expect(clippy::cast_possible_truncation, reason = "64")]
const FINEST_UNIT: usize = RANGE_ALIGNMENT as usize;

/// Size in bytes up to which segments grow, so that ranges share a segment. A larger range has one of its own.
const SEGMENT_BYTES: u64 = 8 << 20;

/// Sizes of the first segments of buffers in bytes. A session that needs more gets twice as much each time, so a
/// program with few buffers waits for few pages.
const FIRST_STORAGE_BYTES: u64 = 1 << 20;
const FIRST_SMALL_STORAGE_BYTES: u64 = 64 << 10;

/// Greatest sum of the sizes of a session's segments for data in transit, in bytes. Further data travels in messages.
const STAGING_BYTES: u64 = 256 << 20;

/// Unused segments of buffers are released while the segments of buffers exceed this many bytes.
const KEPT_BYTES: u64 = 256 << 20;

/// Time for which a manager that refused a segment gets no request for as large a segment.
const REFUSAL_REMEMBERED: Duration = Duration::from_secs(5);

/// The purpose of a segment or range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Data in transit.
    Staging,
    /// The memory of a buffer of a page or more.
    Storage,
    /// The memory of a smaller buffer.
    SmallStorage,
}

/// The calls to the manager that segments need. The session makes them.
pub(crate) trait SegmentCalls {
    /// A new id for an object.
    fn new_id(&self) -> u64;

    /// Sends a call, whose reply comes through the returned channel.
    fn start_call(&self, method: Method) -> Result<oneshot::Receiver<v1::Reply>>;

    /// Waits for the reply to a call.
    fn wait_for_reply(&self, receiver: oneshot::Receiver<v1::Reply>) -> Result<v1::Reply>;

    /// Sends what waits to be sent, and takes what has come, without waiting.
    fn push_out(&self);

    /// Notes that an object has no references any more.
    fn release(&self, object: u64);
}

/// The segments of one session.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    fd_channel: Option<FdChannel>,
    buffers: BufferPlacement,
    state: Mutex<State>,
    /// The requested segment that has not come yet. Locked while a thread waits for it.
    requested: Mutex<Option<RequestedSegment>>,
}

/// A requested segment.
#[derive(Debug)]
struct RequestedSegment {
    id: u64,
    purpose: Purpose,
    bytes: u64,
    reply: oneshot::Receiver<v1::Reply>,
}

#[derive(Debug, Default)]
struct State {
    all: Vec<Arc<Segment>>,
    /// Sum of the segments' sizes in bytes for each [`Purpose`].
    bytes: [u64; 3],
    /// The smallest size that the manager refused lately, and the time of its last refusal.
    refused: Option<(u64, Instant)>,
}

#[derive(Debug)]
struct Segment {
    id: u64,
    purpose: Purpose,
    mapping: Mapping,
    free: Mutex<FreeRanges>,
}

/// A range of a segment. The range has one owner until it is dropped.
#[derive(Debug)]
pub(crate) struct Range {
    segment: Arc<Segment>,
    offset: usize,
    /// Length of the part that is used, in bytes.
    len: usize,
    /// Number of bytes, from the first on, that may hold data of an earlier owner.
    used_before: usize,
}

/// Where buffers can lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum BufferPlacement {
    /// No buffer can lie in shared memory.
    #[default]
    AtManager,
    /// Buffers can lie in shared memory, in whole pages.
    InPages,
    /// Buffers can lie in shared memory. Those of less than a page begin at a multiple of `unit` bytes.
    InUnits { unit: usize },
}

impl BufferPlacement {
    /// The placement by a manager's Welcome.
    pub(crate) fn of(welcome: &v1::Welcome) -> Self {
        let unit = welcome.storage_alignment as usize;
        match unit {
            _ if !welcome.buffers_in_segments => Self::AtManager,
            FINEST_UNIT..PAGE if unit.is_power_of_two() => Self::InUnits { unit },
            _ => Self::InPages,
        }
    }
}

impl Segments {
    pub(crate) fn new(fd_channel: Option<FdChannel>, buffers: BufferPlacement) -> Self {
        Self { fd_channel, buffers, ..Self::default() }
    }

    /// The range for a buffer of `len` bytes, with arbitrary content; `None` if the buffer has to lie at the manager.
    /// Waits for a segment if there is no room.
    pub(crate) fn take_storage(&self, calls: &impl SegmentCalls, len: usize) -> Option<Range> {
        let purpose = match self.buffers {
            BufferPlacement::AtManager => return None,
            BufferPlacement::InUnits { .. } if len < PAGE => Purpose::SmallStorage,
            BufferPlacement::InUnits { .. } | BufferPlacement::InPages => Purpose::Storage,
        };
        self.take(calls, purpose, len, Awaited::Yes)
    }

    /// Whether buffers of less than a page share pages.
    pub(crate) fn small_buffers_share_pages(&self) -> bool {
        matches!(self.buffers, BufferPlacement::InUnits { .. })
    }

    /// A range of `len` bytes with arbitrary content; `None` if the data has to travel in messages. If there is no
    /// room the manager is asked for another segment; this waits for the segment only if the command is awaited
    /// anyway.
    pub(crate) fn take(
        &self,
        calls: &impl SegmentCalls,
        purpose: Purpose,
        len: usize,
        awaited: Awaited,
    ) -> Option<Range> {
        let fd_channel = self.fd_channel.as_ref()?;
        if let Some(range) = lock(&self.state).take(purpose, len) {
            return Some(range);
        }
        let mut requested = match awaited {
            Awaited::Yes => lock(&self.requested),
            Awaited::No => self.requested.try_lock().ok()?,
        };
        self.take_requested(calls, fd_channel, &mut requested, awaited);
        if let Some(range) = lock(&self.state).take(purpose, len) {
            return Some(range);
        }
        let usual = lock(&self.state).next_segment_bytes(purpose);
        let bytes = (len as u64).checked_next_multiple_of(PAGE_BYTES)?.max(usual);
        self.request(calls, &mut requested, purpose, bytes);
        if awaited == Awaited::No {
            calls.push_out();
            return None;
        }
        self.take_requested(calls, fd_channel, &mut requested, awaited);
        lock(&self.state).take(purpose, len)
    }

    /// Requests the first segment for data in transit without waiting for it.
    pub(crate) fn prepare(&self, calls: &impl SegmentCalls) {
        if self.fd_channel.is_some()
            && *lock(&self.state).bytes_of(Purpose::Staging) == 0
            && let Ok(mut requested) = self.requested.try_lock()
        {
            self.request(calls, &mut requested, Purpose::Staging, SEGMENT_BYTES);
        }
    }

    /// Whether descriptors of shared memory can come.
    pub(crate) fn has_descriptors(&self) -> bool {
        self.fd_channel.is_some()
    }

    /// Requests a placed segment, and returns its address, and its descriptor if this process maps it.
    ///
    /// # Errors
    /// The manager's error; `CL_OUT_OF_RESOURCES` if the answer is not what was requested.
    pub(crate) fn place(
        &self,
        calls: &impl SegmentCalls,
        create: v1::CreatePlacedSegment,
    ) -> Result<(usize, Option<OwnedFd>)> {
        let (id, size) = (create.segment, create.size);
        let fd_channel = self.fd_channel.as_ref().filter(|_| create.mapped);
        // Descriptors come in the order of the requests, so the other requested one is taken before.
        let mut requested = lock(&self.requested);
        if let Some(fd_channel) = fd_channel {
            self.take_requested(calls, fd_channel, &mut requested, Awaited::Yes);
        }
        let reply = calls.wait_for_reply(calls.start_call(Method::CreatePlacedSegment(create))?)?;
        if reply.status != 0 {
            return Err(ClError(reply.status.min(-1)));
        }
        let fd = fd_channel.map(|fd_channel| fd_channel.receive(id)).transpose();
        let Some(reply::Result::PlacedSegment(v1::PlacedSegment { address })) = reply.result else {
            calls.release(id);
            return Err(ClError::OUT_OF_RESOURCES);
        };
        match (check_address(address, size), fd) {
            (Ok(address), Ok(fd)) => Ok((address, fd)),
            (address, fd) => {
                tracing::warn!(?address, ?fd, "A placed segment can't be used");
                calls.release(id);
                Err(ClError::OUT_OF_RESOURCES)
            }
        }
    }

    /// Requests a segment unless one is requested already.
    fn request(
        &self,
        calls: &impl SegmentCalls,
        requested: &mut Option<RequestedSegment>,
        purpose: Purpose,
        bytes: u64,
    ) {
        if requested.is_none() && lock(&self.state).may_request(purpose, bytes) {
            let id = calls.new_id();
            let create = v1::CreateSegment { segment: id, size: bytes };
            let reply = calls.start_call(Method::CreateSegment(create)).ok();
            *requested = reply.map(|reply| RequestedSegment { id, purpose, bytes, reply });
        }
    }

    /// Takes the requested segment if it has come; waits for it if the command is awaited.
    fn take_requested(
        &self,
        calls: &impl SegmentCalls,
        fd_channel: &FdChannel,
        requested: &mut Option<RequestedSegment>,
        awaited: Awaited,
    ) {
        let Some(RequestedSegment { id, purpose, bytes, mut reply }) = requested.take() else { return };
        let reply = match awaited {
            Awaited::Yes => calls.wait_for_reply(reply).ok(),
            Awaited::No => {
                calls.push_out();
                match reply.try_recv() {
                    Err(TryRecvError::Empty) => {
                        *requested = Some(RequestedSegment { id, purpose, bytes, reply });
                        return;
                    }
                    reply => reply.ok(),
                }
            }
        };
        let unit = match (purpose, self.buffers) {
            (Purpose::SmallStorage, BufferPlacement::InUnits { unit }) => unit,
            _ => PAGE,
        };
        let created = reply.and_then(|reply| created(calls, fd_channel, (id, purpose, bytes, unit), &reply));
        let mut state = lock(&self.state);
        match created {
            Some(segment) => {
                state.all.push(Arc::new(segment));
                *state.bytes_of(purpose) += bytes;
            }
            None => {
                let smallest = state.refused.map_or(bytes, |(refused, _)| refused.min(bytes));
                state.refused = Some((smallest, Instant::now()));
            }
        }
    }

    /// Releases segments of buffers that were destroyed, if there are far more than the program uses.
    pub(crate) fn trim(&self, calls: &impl SegmentCalls) {
        for id in lock(&self.state).trim() {
            calls.release(id);
        }
    }
}

impl State {
    fn take(&self, purpose: Purpose, len: usize) -> Option<Range> {
        self.all.iter().filter(|segment| segment.purpose == purpose).find_map(|segment| {
            let TakenRange { offset, used_before } = lock(&segment.free).take(len)?;
            Some(Range { segment: Arc::clone(segment), offset, len, used_before })
        })
    }

    fn bytes_of(&mut self, purpose: Purpose) -> &mut u64 {
        let [staging, storage, small] = &mut self.bytes;
        match purpose {
            Purpose::Staging => staging,
            Purpose::Storage => storage,
            Purpose::SmallStorage => small,
        }
    }

    /// Size of the next segment in bytes, unless a range needs more.
    fn next_segment_bytes(&mut self, purpose: Purpose) -> u64 {
        let first = match purpose {
            Purpose::Staging => SEGMENT_BYTES,
            Purpose::Storage => FIRST_STORAGE_BYTES,
            Purpose::SmallStorage => FIRST_SMALL_STORAGE_BYTES,
        };
        (*self.bytes_of(purpose)).clamp(first, SEGMENT_BYTES)
    }

    fn trim(&mut self) -> Vec<u64> {
        let bytes = &mut self.bytes;
        if bytes[1..].iter().sum::<u64>() <= KEPT_BYTES {
            return Vec::new();
        }
        let gone = self.all.extract_if(.., |segment| {
            let [_, storage, small] = &mut *bytes;
            let kept = *storage + *small;
            let its_kind = match segment.purpose {
                Purpose::Staging => return false,
                Purpose::Storage => storage,
                Purpose::SmallStorage => small,
            };
            // No range of an unused segment exists, and no range can be taken without this state's lock.
            let goes = kept > KEPT_BYTES && lock(&segment.free).is_whole();
            *its_kind -= if goes { segment.mapping.len() as u64 } else { 0 };
            goes
        });
        let gone: Vec<_> = gone.map(|segment| segment.id).collect();
        if !gone.is_empty() {
            self.refused = None;
        }
        gone
    }

    fn may_request(&mut self, purpose: Purpose, bytes: u64) -> bool {
        self.refused = self.refused.filter(|(_, since)| since.elapsed() < REFUSAL_REMEMBERED);
        let enough = purpose != Purpose::Staging || *self.bytes_of(purpose) + bytes <= STAGING_BYTES;
        enough
            && bytes <= MAX_SEGMENT_BYTES
            && self.all.len() < MAX_SEGMENTS
            && self.refused.is_none_or(|(refused, _)| bytes < refused)
    }
}

/// The segment with this id, purpose, size and unit of ranges, if the reply is a success.
fn created(
    calls: &impl SegmentCalls,
    fd_channel: &FdChannel,
    (id, purpose, bytes, unit): (u64, Purpose, u64, usize),
    reply: &v1::Reply,
) -> Option<Segment> {
    if reply.status != 0 {
        tracing::debug!(reply.status, bytes, "The manager shares no more memory");
        return None;
    }
    let len = usize::try_from(bytes).ok()?;
    match fd_channel.receive(id).and_then(|fd| Mapping::new(&fd, len)) {
        Ok(mapping) => Some(Segment { id, purpose, mapping, free: Mutex::new(FreeRanges::new(len, unit)) }),
        Err(error) => {
            tracing::warn!(%error, "A segment can't be used");
            calls.release(id);
            None
        }
    }
}

impl Range {
    /// The range as a message.
    pub(crate) fn message(&self) -> v1::SegmentRange {
        let (offset, length) = (self.offset as u64, self.len as u64);
        v1::SegmentRange { segment: self.segment.id, offset, length }
    }

    /// Copies all of `source` to `offset`. Returns false and copies nothing if it doesn't fit.
    pub(crate) fn write_at(&self, offset: usize, source: &HostSource) -> bool {
        self.fits(offset, source.len()) && self.segment.mapping.write(self.offset + offset, source)
    }

    /// Fills `target` from `offset` on. Returns false and copies nothing if there aren't as many bytes.
    pub(crate) fn read_at(&self, offset: usize, target: &mut HostTarget) -> bool {
        self.fits(offset, target.len()) && self.segment.mapping.read(self.offset + offset, target)
    }

    /// Sets the range to zero. Bytes that no earlier owner had are zero already.
    pub(crate) fn zero(&self) {
        self.segment.mapping.zero(self.offset, self.used_before);
    }

    /// The range as host memory, for maps. The segment stays mapped as long as the host memory lives.
    pub(crate) fn memory(&self) -> Option<HostTarget> {
        let owner: Arc<dyn MemoryOwner> = Arc::clone(&self.segment) as _;
        self.segment.mapping.memory(self.offset, self.len, owner)
    }

    fn fits(&self, offset: usize, len: usize) -> bool {
        offset.checked_add(len).is_some_and(|end| end <= self.len)
    }
}

impl MemoryOwner for Segment {}

impl Drop for Range {
    fn drop(&mut self) {
        lock(&self.segment.free).give_back(self.offset, self.len);
    }
}
