//! Numbers in the place of names and digests: two numbers are compared in one step of the processor.

use crate::bitstream::BitstreamId;
use crate::node_state::DigestPrefix;
use std::hash::{DefaultHasher, Hasher as _};

/// A number that stands for a name or digest. That two share one happens once in 2^64 pairs; a node that wanted to pass
/// for having a bitstream could simply say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// Of a name.
    Name(u64),
    /// Of the start of a digest.
    Digest(u64),
}

/// The key of something that has neither a name nor a digest.
pub(super) const NONE: u64 = 0;

impl Key {
    /// That of `id`.
    #[must_use]
    pub fn of(id: &BitstreamId) -> Self {
        match id {
            BitstreamId::Name(name) => Self::Name(name_key(name)),
            BitstreamId::Digest(digest) => Self::Digest(digest_key(digest.into())),
        }
    }
}

/// The key of a name.
pub(super) fn name_key(name: &str) -> u64 {
    // Both sides are of one process, so it need not be the same in the next version of the standard library.
    let mut hasher = DefaultHasher::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

/// The key of the start of a digest.
pub(super) fn digest_key(digest: DigestPrefix) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}
