//! SHA-256 digests of bytes and files.

use fpga_core::bitstream::Digest;
use ring::digest::{Context, SHA256};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// A digest that is computed piece by piece.
pub struct Hasher(Context);

impl Default for Hasher {
    fn default() -> Self {
        Self(Context::new(&SHA256))
    }
}

impl Hasher {
    /// Adds bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    #[must_use]
    pub fn finish(self) -> Digest {
        let mut bytes = [0; 32];
        for (to, from) in bytes.iter_mut().zip(self.0.finish().as_ref()) {
            *to = *from;
        }
        Digest::from_bytes(bytes)
    }
}

/// The digest of `bytes`.
#[must_use]
pub fn of_bytes(bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::default();
    hasher.update(bytes);
    hasher.finish()
}

/// The digest of a file, and the number of its bytes. No more than `limit` + 1 bytes are read.
///
/// # Errors
/// The file can't be read.
pub fn of_file(path: &Path, limit: u64) -> io::Result<(Digest, u64)> {
    let mut file = File::open(path)?.take(limit.saturating_add(1));
    let (mut hasher, mut length, mut buffer) = (Hasher::default(), 0, vec![0; 64 * 1024]);
    loop {
        let read = file.read(&mut buffer)?;
        if read == 0 {
            return Ok((hasher.finish(), length));
        }
        hasher.update(&buffer[..read]);
        length += read as u64;
    }
}
