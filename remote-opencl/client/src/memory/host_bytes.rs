//! The bytes of a command in host memory, which have gaps or not, until they are taken.

use crate::memory::host_memory::{Awaited, HostSource};
use crate::memory::pitches::Pitches;
use std::ops::Range;

/// The bytes of a command in host memory, with gaps or without.
#[derive(Debug)]
pub(crate) struct HostBytes {
    source: HostSource,
    /// Where the bytes lie in the source; `None` if they are all of it.
    pitches: Option<Pitches>,
}

impl From<HostSource> for HostBytes {
    fn from(source: HostSource) -> Self {
        Self { source, pitches: None }
    }
}

impl HostBytes {
    pub(crate) fn with_pitches(source: HostSource, pitches: Pitches) -> Self {
        Self { source, pitches: (!pitches.is_tight()).then_some(pitches) }
    }

    /// Number of bytes without the gaps.
    pub(crate) fn len(&self) -> usize {
        self.pitches.map_or(self.source.len(), |pitches| pitches.bytes())
    }

    /// The host memory in which they lie; `None` if they were copied already.
    pub(crate) fn addresses(&self) -> Option<Range<usize>> {
        self.source.addresses()
    }

    pub(crate) fn is_awaited(&self) -> Awaited {
        self.source.is_awaited()
    }

    /// The bytes without gaps. With gaps they are copied now, else they are read when they are sent.
    pub(crate) fn packed(self) -> HostSource {
        match self.pitches {
            Some(pitches) => HostSource::owned(pitches.pack(&self.source)).awaited(self.source.is_awaited()),
            None => self.source,
        }
    }
}
