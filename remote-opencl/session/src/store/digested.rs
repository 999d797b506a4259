//! Bytes with their digest.

use super::{StoreError, digest_of};
use bytes::Bytes;
use fpga_core::bitstream::Digest;

/// A bitstream's bytes with their digest. The bytes are hashed once, when the value is made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Digested {
    pub(super) digest: Digest,
    pub(super) bytes: Bytes,
}

impl Digested {
    /// The bytes that a client announced with the digest `announced`.
    ///
    /// # Errors
    /// [`StoreError::OtherBytes`] if they have another digest.
    pub fn announced_as(announced: Digest, bytes: Bytes) -> Result<Self, StoreError> {
        let bitstream = Self::from(bytes);
        let actual = bitstream.digest;
        if actual == announced { Ok(bitstream) } else { Err(StoreError::OtherBytes { announced, actual }) }
    }

    /// The digest.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

impl From<Bytes> for Digested {
    fn from(bytes: Bytes) -> Self {
        Self { digest: digest_of(&bytes), bytes }
    }
}
