//! Frames on a stream of words: a word with the length in bytes, then the bytes, padded to whole words.

use bytes::{Buf as _, Bytes, BytesMut};

const WORD: usize = size_of::<u64>();

/// An empty buffer with a larger capacity, left behind by a long frame, is freed.
const KEPT_BYTES: usize = 512 << 10;

/// The length of a frame exceeds the limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a frame of {length} bytes, and {limit} are allowed")]
pub struct TooLong {
    /// Length that the frame declares, in bytes.
    pub length: u64,
    /// Greatest allowed length, in bytes.
    pub limit: usize,
}

/// Appends a frame to `out`; `content` appends the bytes of the frame.
///
/// # Errors
/// The error of `content`; `out` is then unchanged.
pub fn frame<E>(out: &mut BytesMut, content: impl FnOnce(&mut BytesMut) -> Result<(), E>) -> Result<(), E> {
    let start = out.len();
    out.extend_from_slice(&[0; WORD]);
    if let Err(error) = content(out) {
        out.truncate(start);
        return Err(error);
    }
    let length = out.len() - start - WORD;
    out[start..start + WORD].copy_from_slice(&(length as u64).to_le_bytes());
    out.resize(start + WORD + length.next_multiple_of(WORD), 0);
    Ok(())
}

/// Splits the words received from a stream into frames.
#[derive(Debug)]
pub struct Frames {
    buffer: BytesMut,
    limit: usize,
}

impl Frames {
    /// An empty buffer, for frames of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// The buffer that words of the stream are appended to. It grows with the received words only, whatever length
    /// a frame declares.
    pub fn buffer(&mut self) -> &mut BytesMut {
        &mut self.buffer
    }

    /// The next whole frame, copied out of the buffer.
    ///
    /// # Errors
    /// [`TooLong`] if the next frame declares more bytes than the limit.
    pub fn take(&mut self) -> Result<Option<Bytes>, TooLong> {
        let Some(first) = self.buffer.first_chunk::<WORD>() else { return Ok(None) };
        let length = u64::from_le_bytes(*first);
        let limit = self.limit;
        let bytes = match usize::try_from(length) {
            Ok(bytes) if bytes <= limit => bytes,
            _ => return Err(TooLong { length, limit }),
        };
        let whole = WORD + bytes.next_multiple_of(WORD);
        if self.buffer.len() < whole {
            return Ok(None);
        }
        // Copied: a slice of the buffer would keep alive everything that was read with the frame.
        let frame = Bytes::copy_from_slice(&self.buffer[WORD..WORD + bytes]);
        if self.buffer.len() > whole {
            self.buffer.advance(whole);
        } else if self.buffer.capacity() > KEPT_BYTES {
            self.buffer = BytesMut::new();
        } else {
            // Not `advance`: a buffer that is advanced to its end looks lost to tools that search for leaks.
            self.buffer.clear();
        }
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn framed(contents: &[&[u8]]) -> BytesMut {
        let mut out = BytesMut::new();
        for content in contents {
            let put = |out: &mut BytesMut| {
                out.extend_from_slice(content);
                Ok::<_, Infallible>(())
            };
            frame(&mut out, put).unwrap();
        }
        out
    }

    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut() {
        let contents: [&[u8]; 4] = [b"", b"12345678", b"a", &[7; 100]];
        let out = framed(&contents);
        assert!(out.len().is_multiple_of(WORD));
        for cut in (0..out.len()).step_by(WORD) {
            let mut frames = Frames::new(100);
            let mut got = Vec::new();
            for part in [&out[..cut], &out[cut..]] {
                frames.buffer().extend_from_slice(part);
                while let Some(frame) = frames.take().unwrap() {
                    got.push(frame);
                }
            }
            assert_eq!(got, contents);
        }
    }

    #[test]
    fn a_length_that_lies_takes_no_memory() {
        for length in [101, u64::from(u32::MAX), u64::MAX] {
            let mut frames = Frames::new(100);
            frames.buffer().extend_from_slice(&length.to_le_bytes());
            assert_eq!(frames.take(), Err(TooLong { length, limit: 100 }));
        }
    }

    #[test]
    fn a_frame_that_fails_leaves_nothing() {
        let mut out = framed(&[b"before"]);
        let before = out.clone();
        let fail = |out: &mut BytesMut| {
            out.extend_from_slice(b"half");
            Err("no")
        };
        assert_eq!(frame(&mut out, fail), Err("no"));
        assert_eq!(out, before);
    }
}
