//! Memory that has the same address in this process and in the manager's, for unified shared memory. Where memory is
//! shared with the manager, this process maps it, too. Else it only keeps the addresses free.

use crate::base::sync::lock;
use crate::error::{ClError, Result};
use crate::memory::free_ranges::{FreeRanges, TakenRange};
use crate::memory::mapping::Mapping;
use crate::memory::segments::{SegmentCalls, Segments};
use fpga_protocol::segments::{MAX_SEGMENT_BYTES, MAX_SEGMENTS, PAGE_BYTES};
use fpga_protocol::v1;
use std::sync::{Arc, Mutex};

/// Sizes of segments in bytes that allocations share. The next segment has as many bytes as all before.
const FIRST_BYTES: u64 = 1 << 20;
const LAST_BYTES: u64 = 64 << 20;

/// Unused segments are released while all segments have more than this many bytes.
const KEPT_BYTES: u64 = 8 << 20;

/// Number of segments that are requested until the addresses of one are free in this process. The addresses are random.
const PLACES_TRIED: usize = 8;

/// The placed segments of one session.
#[derive(Debug, Default)]
pub(crate) struct PlacedSegments {
    /// Offsets of ranges are a multiple of this many bytes; `None` where the manager has no such memory.
    unit: Option<usize>,
    all: Mutex<Vec<Arc<Placed>>>,
}

#[derive(Debug)]
struct Placed {
    id: u64,
    mapping: Mapping,
    free: Mutex<FreeRanges>,
}

/// A range of a placed segment. The range has one owner until it is dropped.
#[derive(Debug)]
pub(crate) struct PlacedRange {
    segment: Arc<Placed>,
    taken: TakenRange,
    taken_len: usize,
    /// Offset of the first byte in the segment; at least that of `taken`, where a coarser alignment was wanted.
    offset: usize,
    len: usize,
}

/// The length and the alignment of a range, in bytes.
#[derive(Debug, Clone, Copy)]
struct Wanted {
    len: usize,
    alignment: usize,
    taken_len: usize,
}

impl PlacedSegments {
    pub(crate) fn new(unit: Option<usize>) -> Self {
        Self { unit, ..Self::default() }
    }

    /// A range of `len` bytes with arbitrary content, whose address is a multiple of `alignment`, a power of two.
    ///
    /// # Errors
    /// `CL_INVALID_OPERATION` where there is no such memory, `CL_MEM_OBJECT_ALLOCATION_FAILURE` if the manager gives no
    /// more, `CL_OUT_OF_RESOURCES` if the addresses of several segments are in use here.
    pub(crate) fn take(
        &self,
        calls: &impl SegmentCalls,
        segments: &Segments,
        (len, alignment): (usize, usize),
    ) -> Result<PlacedRange> {
        let unit = self.unit.ok_or(ClError::INVALID_OPERATION)?;
        let taken_len = len.checked_add(alignment.saturating_sub(unit));
        let taken_len = taken_len.ok_or(ClError::INVALID_BUFFER_SIZE)?;
        let wanted = Wanted { len, alignment, taken_len };
        let usual = {
            let all = lock(&self.all);
            if let Some(range) = all.iter().find_map(|segment| Placed::take(segment, wanted)) {
                return Ok(range);
            }
            if all.len() >= MAX_SEGMENTS / 2 {
                return Err(ClError::MEM_OBJECT_ALLOCATION_FAILURE);
            }
            bytes_of(&all).clamp(FIRST_BYTES, LAST_BYTES)
        };
        let bytes = (taken_len as u64).checked_next_multiple_of(PAGE_BYTES);
        let bytes = bytes.filter(|bytes| *bytes <= MAX_SEGMENT_BYTES).ok_or(ClError::INVALID_BUFFER_SIZE)?;
        let segment = Arc::new(request_somewhere(calls, segments, bytes.max(usual), unit)?);
        let range = Placed::take(&segment, wanted).ok_or(ClError::MEM_OBJECT_ALLOCATION_FAILURE)?;
        lock(&self.all).push(segment);
        Ok(range)
    }

    /// Releases segments without ranges, if there are far more than the program uses.
    pub(crate) fn trim(&self, calls: &impl SegmentCalls) {
        let gone: Vec<_> = {
            let mut all = lock(&self.all);
            let mut bytes = bytes_of(&all);
            // No range of an unused segment exists, and none can be taken without the lock.
            let goes = |segment: &mut Arc<Placed>| {
                let goes = bytes > KEPT_BYTES && lock(&segment.free).is_whole();
                bytes -= if goes { segment.mapping.len() as u64 } else { 0 };
                goes
            };
            all.extract_if(.., goes).collect()
        };
        for segment in gone {
            calls.release(segment.id);
        }
    }
}

fn bytes_of(segments: &[Arc<Placed>]) -> u64 {
    segments.iter().map(|segment| segment.mapping.len() as u64).sum()
}

/// Requests segments until the addresses of one are free in this process.
fn request_somewhere(
    calls: &impl SegmentCalls,
    segments: &Segments,
    bytes: u64,
    unit: usize,
) -> Result<Placed> {
    let len = usize::try_from(bytes).map_err(|_| ClError::INVALID_BUFFER_SIZE)?;
    for _ in 0..PLACES_TRIED {
        let id = calls.new_id();
        let mapped = segments.has_descriptors();
        let create = v1::CreatePlacedSegment { segment: id, size: bytes, mapped };
        let (address, fd) = segments.place(calls, create)?;
        let mapping = match fd {
            Some(fd) => Mapping::placed(&fd, len, address),
            None => Mapping::reserved(len, address),
        };
        match mapping {
            Ok(mapping) => return Ok(Placed { id, mapping, free: Mutex::new(FreeRanges::new(len, unit)) }),
            Err(error) => {
                tracing::debug!(%error, address, "A segment can't have its address here");
                calls.release(id);
            }
        }
    }
    Err(ClError::OUT_OF_RESOURCES)
}

impl Placed {
    fn take(segment: &Arc<Self>, wanted: Wanted) -> Option<PlacedRange> {
        let Wanted { len, alignment, taken_len } = wanted;
        let taken = lock(&segment.free).take(taken_len)?;
        let base = segment.mapping.address();
        let offset = (base + taken.offset).next_multiple_of(alignment.max(1)) - base;
        Some(PlacedRange { segment: Arc::clone(segment), taken, taken_len, offset, len })
    }
}

impl PlacedRange {
    /// Address of the first byte, in this process and in the manager's.
    pub(crate) fn address(&self) -> usize {
        self.segment.mapping.address() + self.offset
    }

    /// The range as a message.
    pub(crate) fn message(&self) -> v1::SegmentRange {
        let (offset, length) = (self.offset as u64, self.len as u64);
        v1::SegmentRange { segment: self.segment.id, offset, length }
    }
}

impl Drop for PlacedRange {
    fn drop(&mut self) {
        lock(&self.segment.free).give_back(self.taken.offset, self.taken_len);
    }
}
