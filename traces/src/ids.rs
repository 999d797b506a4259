//! Ids of traces and spans. None is zero.

use crate::hex;
use std::fmt;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};

/// Id of a trace: of all that is done for one request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TraceId([u8; 16]);

/// Id of a span of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SpanId([u8; 8]);

impl TraceId {
    /// The id with these bytes; `None` if there are not 16, or all are zero.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().filter(|bytes| *bytes != [0; 16]).map(Self)
    }

    /// The id with these 32 lowercase digits; `None` if that is no id.
    #[must_use]
    pub fn from_hex(digits: &[u8]) -> Option<Self> {
        Self::from_bytes(&hex::parse::<16>(digits)?)
    }

    /// The id's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl SpanId {
    /// A new id: random, but no secret.
    #[must_use]
    pub fn new() -> Self {
        // Each of these states has keys of its own, which the system's random numbers begin.
        Self(RandomState::new().build_hasher().finish().max(1).to_be_bytes())
    }

    /// The id with these bytes; `None` if there are not 8, or all are zero.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().filter(|bytes| *bytes != [0; 8]).map(Self)
    }

    /// The id with these 16 lowercase digits; `None` if that is no id.
    #[must_use]
    pub fn from_hex(digits: &[u8]) -> Option<Self> {
        Self::from_bytes(&hex::parse::<8>(digits)?)
    }

    /// The id's bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8; 8] {
        &self.0
    }
}

impl Default for SpanId {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex::write(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SpanId({self})")
    }
}
