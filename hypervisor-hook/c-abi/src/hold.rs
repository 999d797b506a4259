//! The data in the caller's memory between acquire and release. These are plain bytes, so that neither call needs a
//! lock or an allocation.
//!
//! The data is checked before it is used, since the caller may have overwritten it.

use crate::entry::{failure, invalid};
use crate::text::MAX_TEXT;
use fpga_core::bitstream::{BitstreamId, Digest};
use fpga_foreign_process::c_boundary::Failure;
use std::time::Duration;

const MAGIC: u64 = u64::from_le_bytes(*b"fpgahold");

/// A slot that a task holds, in the caller's memory. fpga_hook_acquire() fills it and fpga_hook_release() ends it;
/// its content is private. It may be dropped: a slot that is acquired but never released is never reported.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct FpgaHookHold {
    private_words: [u64; 40],
}

/// The content of a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    pub task: u64,
    /// When the task got the slot, since the handle was made, by a monotonic clock.
    pub started: Duration,
    pub slot: u32,
    pub bitstream: Bitstream,
    pub tenant: String,
}

/// A bitstream, as far as the caller identifies it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bitstream {
    pub id: BitstreamId,
    /// The digest, if the id is a name.
    pub digest: Option<Digest>,
}

impl Bitstream {
    /// A bitstream by name (may be empty), by digest, or by both.
    pub fn new(name: &str, digest: Option<Digest>) -> Result<Self, Failure> {
        match (name, digest) {
            ("", None) => Err(invalid("the bitstream has neither name nor sha256")),
            ("", Some(digest)) => Ok(Self { id: BitstreamId::Digest(digest), digest: None }),
            (name, digest) => match name.parse() {
                // Both are given and the name is a digest: keep only the id.
                Ok(id @ BitstreamId::Digest(_)) => Ok(Self { id, digest: None }),
                Ok(id @ BitstreamId::Name(_)) => Ok(Self { id, digest }),
                Err(error) => Err(invalid(error.to_string())),
            },
        }
    }
}

/// The words of a hold as fields. There is no padding: the sizes add up to that of the words.
#[repr(C)]
#[derive(Clone, Copy)]
struct Layout {
    magic: u64,
    task: u64,
    started_ns: u64,
    slot: u32,
    name_length: u8,
    tenant_length: u8,
    has_digest: u8,
    reserved: u8,
    digest: [u8; 32],
    name: [u8; MAX_TEXT],
    tenant: [u8; MAX_TEXT],
}

const _: () = assert!(size_of::<Layout>() == size_of::<FpgaHookHold>());

impl FpgaHookHold {
    /// A hold with these values; texts are at most [`MAX_TEXT`] bytes.
    pub fn new(
        task: u64,
        started: Duration,
        slot: u32,
        name: &str,
        digest: Option<Digest>,
        tenant: &str,
    ) -> Self {
        let (name, name_length) = padded(name);
        let (tenant, tenant_length) = padded(tenant);
        let layout = Layout {
            magic: MAGIC,
            task,
            started_ns: u64::try_from(started.as_nanos()).unwrap_or(u64::MAX),
            slot,
            name_length,
            tenant_length,
            has_digest: digest.is_some().into(),
            reserved: 0,
            digest: digest.map_or([0; 32], |digest| *digest.as_bytes()),
            name,
            tenant,
        };
        // SAFETY: both are plain integers without padding, of one size.
        Self { private_words: unsafe { std::mem::transmute::<Layout, [u64; 40]>(layout) } }
    }

    /// Marks the hold as released.
    pub const fn end(&mut self) {
        // Without the magic number, the other words are not read.
        self.private_words[0] = 0;
    }

    /// The content of the hold; an error if it was not acquired, was released, or was overwritten.
    pub fn held(&self) -> Result<Held, Failure> {
        // SAFETY: both are plain integers without padding, of one size, and words are aligned for all of them.
        let layout = unsafe { &*(&raw const self.private_words).cast::<Layout>() };
        if layout.magic != MAGIC {
            return Err(failure(libc::ENOENT, "the hold was not acquired, or was released before"));
        }
        let digest = (layout.has_digest != 0).then(|| Digest::from_bytes(layout.digest));
        let name = unpadded(&layout.name, layout.name_length)?;
        Ok(Held {
            task: layout.task,
            started: Duration::from_nanos(layout.started_ns),
            slot: layout.slot,
            bitstream: Bitstream::new(name, digest)?,
            tenant: unpadded(&layout.tenant, layout.tenant_length)?.to_owned(),
        })
    }
}

fn padded(text: &str) -> ([u8; MAX_TEXT], u8) {
    let length = text.len().min(MAX_TEXT);
    let mut bytes = [0; MAX_TEXT];
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    (bytes, u8::try_from(length).unwrap_or_default())
}

fn unpadded(bytes: &[u8], length: u8) -> Result<&str, Failure> {
    let bytes = bytes.get(..length.into());
    bytes.and_then(|bytes| std::str::from_utf8(bytes).ok()).ok_or_else(|| invalid("the hold was overwritten"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mk_hold() -> FpgaHookHold {
        let digest = Digest::from_bytes([7; 32]);
        FpgaHookHold::new(3, Duration::from_nanos(5), 2, "sobel", Some(digest), "pod-1")
    }

    #[test]
    fn a_hold_says_what_was_acquired() {
        let held = mk_hold().held().unwrap();
        assert_eq!((held.task, held.started, held.slot), (3, Duration::from_nanos(5), 2));
        assert_eq!(held.bitstream.id.to_string(), "sobel");
        assert_eq!(held.bitstream.digest, Some(Digest::from_bytes([7; 32])));
        assert_eq!(held.tenant, "pod-1");
    }

    #[test]
    fn whatever_lies_in_its_place_is_refused_or_harmless() {
        let mut ended = mk_hold();
        ended.end();
        assert!(ended.held().is_err());
        for word in 0..40 {
            for value in [0, u64::MAX, 0x8080_8080_8080_8080] {
                let mut hold = mk_hold();
                hold.private_words[word] = value;
                // The result is a value or an error, never a panic.
                let _ = hold.held();
            }
        }
        let mut hold = mk_hold();
        hold.private_words[3] = u64::MAX;
        assert!(hold.held().is_err(), "lengths beyond the room are seen");
    }

    #[test]
    fn a_bitstream_needs_a_name_or_a_digest() {
        assert!(Bitstream::new("", None).is_err());
        assert!(Bitstream::new("no spaces", None).is_err());
        let by_digest = Bitstream::new("", Some(Digest::from_bytes([1; 32]))).unwrap();
        assert!(matches!(by_digest.id, BitstreamId::Digest(_)));
        let text = by_digest.id.to_string();
        assert_eq!(Bitstream::new(&text, None).unwrap(), by_digest);
    }
}
