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

/// A set of keys as a bloom filter. Most nodes have none of a pod's bitstreams, and the filter alone shows that.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct KeySet([u64; 2]);

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

impl KeySet {
    /// False if the set doesn't have the key. True may be a false positive.
    pub(super) fn may_have(self, key: Key) -> bool {
        let (Key::Name(key) | Key::Digest(key)) = key;
        let (Self([a, b]), [bit_of_a, bit_of_b]) = (self, Self::bits(key));
        a & bit_of_a != 0 && b & bit_of_b != 0
    }

    /// The bit of a key in either word.
    fn bits(key: u64) -> [u64; 2] {
        [1 << (key % 64), 1 << ((key >> 32) % 64)]
    }
}

impl FromIterator<u64> for KeySet {
    fn from_iter<I: IntoIterator<Item = u64>>(keys: I) -> Self {
        let mut set = Self::default();
        for key in keys.into_iter().filter(|key| *key != NONE) {
            let [a, b] = Self::bits(key);
            set.0[0] |= a;
            set.0[1] |= b;
        }
        set
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
