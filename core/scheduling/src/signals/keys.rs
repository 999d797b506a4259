//! 64-bit keys of names and digests. Comparing two keys takes one instruction.

use crate::bitstream::BitstreamId;
use crate::node_state::DigestPrefix;
use std::hash::{DefaultHasher, Hasher as _};

/// The key of a name or a digest. Two identifiers share a key with a probability of 2^-64. A node gains nothing by a
/// deliberate collision: it can claim any bitstream anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Key {
    /// Key of a name.
    Name(u64),
    /// Key of the start of a digest.
    Digest(u64),
}

/// The key of an absent name or digest.
pub(super) const NONE: u64 = 0;

impl Key {
    /// The key of `id`.
    #[must_use]
    pub(crate) fn of(id: &BitstreamId) -> Self {
        match id {
            BitstreamId::Name(name) => Self::Name(name_key(name)),
            BitstreamId::Digest(digest) => Self::Digest(digest_key(digest.into())),
        }
    }
}

/// The key of a name.
pub(super) fn name_key(name: &str) -> u64 {
    // Keys are compared within one process only, so the hash may differ between versions of the standard library.
    let mut hasher = DefaultHasher::new();
    hasher.write(name.as_bytes());
    hasher.finish()
}

/// The key of the start of a digest.
pub(super) fn digest_key(digest: DigestPrefix) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *digest.as_bytes();
    u64::from_le_bytes([a, b, c, d, e, f, g, h])
}
