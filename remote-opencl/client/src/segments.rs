//! Memory that is shared with a manager on the same node: bulk data is copied into it or out of it, and messages name
//! the range. Where there is none (TCP, no descriptor can be passed, the manager gives no more, `FPGA_SHARED_MEMORY=off`)
//! [`Segments::take`] has nothing, and the data travels in messages.
//!
//! Segments stay for the session, since a page's first touch costs as much as copying it; ranges of them are taken and
//! given back. Only this session and its manager ever see them.

mod free_ranges;
mod mapping;
mod side;

pub(crate) use side::{Side, is_wanted};

use crate::host_memory::{HostSource, HostTarget};
use crate::session::Session;
use crate::sync::lock;
use fpga_protocol::segments::{MAX_SEGMENTS, PAGE_BYTES};
use fpga_protocol::v1::{self, call::Method};
use free_ranges::FreeRanges;
use mapping::Mapping;
use std::sync::{Arc, Mutex};

/// A segment has at least this many bytes, so that small ranges share one.
const SEGMENT_BYTES: u64 = 8 << 20;

/// Most bytes of a session's segments for data on its way; more travels in messages.
const STAGING_BYTES: u64 = 256 << 20;

/// The segments of one session.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    side: Option<Side>,
    state: Mutex<State>,
    /// Held while a new one is asked for.
    asking: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    all: Vec<Arc<Segment>>,
    bytes: u64,
    /// The smallest size that the manager has refused.
    refused: Option<u64>,
}

#[derive(Debug)]
struct Segment {
    id: u64,
    mapping: Mapping,
    free: Mutex<FreeRanges>,
}

/// A part of a segment, whole pages, ours alone until it is dropped.
#[derive(Debug)]
pub(crate) struct Range {
    segment: Arc<Segment>,
    offset: usize,
    /// What is used of it.
    len: usize,
}

impl Segments {
    pub(crate) fn new(side: Option<Side>) -> Self {
        Self { side, ..Self::default() }
    }

    /// A range of `len` bytes that hold anything; `None` where they have to travel in messages. May ask the manager.
    pub(crate) fn take(&self, session: &Session, len: usize) -> Option<Range> {
        let side = self.side.as_ref()?;
        if let Some(range) = lock(&self.state).take(len) {
            return Some(range);
        }
        let asking = lock(&self.asking);
        if let Some(range) = lock(&self.state).take(len) {
            return Some(range);
        }
        let bytes = (len as u64).checked_next_multiple_of(PAGE_BYTES)?.max(SEGMENT_BYTES);
        if !lock(&self.state).may_ask(bytes) {
            return None;
        }
        let created = create(session, side, bytes);
        let mut state = lock(&self.state);
        match created {
            Some(segment) => {
                state.all.push(Arc::new(segment));
                state.bytes += bytes;
            }
            None => state.refused = Some(state.refused.map_or(bytes, |refused| refused.min(bytes))),
        }
        let range = state.take(len);
        drop(asking);
        range
    }
}

impl State {
    fn take(&self, len: usize) -> Option<Range> {
        self.all.iter().find_map(|segment| {
            let offset = lock(&segment.free).take(len)?;
            Some(Range { segment: Arc::clone(segment), offset, len })
        })
    }

    fn may_ask(&self, bytes: u64) -> bool {
        self.bytes + bytes <= STAGING_BYTES
            && self.all.len() < MAX_SEGMENTS
            && self.refused.is_none_or(|refused| bytes < refused)
    }
}

fn create(session: &Session, side: &Side, bytes: u64) -> Option<Segment> {
    let id = session.new_id();
    let create = v1::CreateSegment { segment: id, size: bytes };
    let reply = session.call(Method::CreateSegment(create)).ok()?;
    if reply.status != 0 {
        tracing::debug!(reply.status, bytes, "The manager shares no more memory");
        return None;
    }
    let len = usize::try_from(bytes).ok()?;
    match side.receive(id).and_then(|fd| Mapping::new(&fd, len)) {
        Ok(mapping) => Some(Segment { id, mapping, free: Mutex::new(FreeRanges::new(len)) }),
        Err(error) => {
            tracing::warn!(%error, "A segment can't be used");
            session.release(id);
            None
        }
    }
}

impl Range {
    /// What a message says of it.
    pub(crate) fn message(&self) -> v1::SegmentRange {
        let (offset, length) = (self.offset as u64, self.len as u64);
        v1::SegmentRange { segment: self.segment.id, offset, length }
    }

    /// Copies all of the source, which has as many bytes.
    pub(crate) fn fill(&self, source: &HostSource) {
        self.segment.mapping.write(self.offset, self.len, source);
    }

    /// Copies all of it to the target, which has as many bytes.
    pub(crate) fn copy_to(&self, target: &mut HostTarget) {
        self.segment.mapping.read(self.offset, self.len, target);
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        lock(&self.segment.free).give_back(self.offset, self.len);
    }
}
