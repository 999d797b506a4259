//! Answers, composed of new text and of pieces of the request.
//!
//! Long pieces of the request are not copied: 5,000 whole nodes are 30 MB.

use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Least bytes of a piece of the request that is not copied.
const MIN_PASSED: usize = 1024;

/// Composes an answer.
#[derive(Debug)]
pub struct Writer<'r> {
    request: &'r Bytes,
    done: VecDeque<Bytes>,
    /// New text after the pieces so far.
    text: Vec<u8>,
}

/// An answer, ready to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply(VecDeque<Bytes>);

impl<'r> Writer<'r> {
    /// Begins an answer to `request`.
    #[must_use]
    pub fn new(request: &'r Bytes) -> Self {
        Self { request, done: VecDeque::new(), text: Vec::new() }
    }

    /// The new text; what is appended follows the pieces so far.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Appends `piece`, without copying it if it is long and lies in the request: a piece costs more than a few bytes.
    pub fn pass(&mut self, piece: &str) {
        match self.place(piece).filter(|range| range.len() >= MIN_PASSED) {
            Some(range) => {
                self.flush();
                self.done.push_back(self.request.slice(range));
            }
            None => self.text.extend_from_slice(piece.as_bytes()),
        }
    }

    /// The complete answer.
    #[must_use]
    pub fn finish(mut self) -> Reply {
        self.flush();
        Reply(self.done)
    }

    /// The range of `piece` in the request; `None` if it lies elsewhere.
    fn place(&self, piece: &str) -> Option<Range<usize>> {
        let start = (piece.as_ptr() as usize).checked_sub(self.request.as_ptr() as usize)?;
        let end = start.checked_add(piece.len())?;
        (end <= self.request.len()).then_some(start..end)
    }

    fn flush(&mut self) {
        if !self.text.is_empty() {
            self.done.push_back(Bytes::from(std::mem::take(&mut self.text)));
        }
    }
}

impl Reply {
    /// Length in bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether the answer is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Capacity in bytes of the pieces that are not the request's.
    #[cfg(test)]
    pub(super) fn own_capacity(self, request: &Bytes) -> usize {
        let own = |piece: &Bytes| !request.as_ptr_range().contains(&piece.as_ptr());
        self.0.into_iter().filter(own).map(|piece| Vec::from(piece).capacity()).sum()
    }
}

impl From<Vec<u8>> for Reply {
    fn from(text: Vec<u8>) -> Self {
        Self([Bytes::from(text)].into())
    }
}

impl From<Reply> for Vec<u8> {
    fn from(reply: Reply) -> Self {
        reply.0.into_iter().flatten().collect()
    }
}

impl Body for Reply {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.pop_front().map(|piece| Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(u64::try_from(self.len()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(reply: &Reply) -> Vec<u8> {
        reply.0.iter().flatten().copied().collect()
    }

    #[test]
    fn a_long_piece_of_the_request_goes_back_without_a_copy() {
        let request = Bytes::from(format!("[one,{}]", "x".repeat(MIN_PASSED)));
        let read = std::str::from_utf8(&request).unwrap();
        let mut writer = Writer::new(&request);
        writer.text().push(b'<');
        writer.pass(&read[1..4]);
        writer.pass(&read[5..5 + MIN_PASSED]);
        writer.text().push(b'>');
        let reply = writer.finish();
        assert_eq!(whole(&reply), format!("<one{}>", "x".repeat(MIN_PASSED)).into_bytes());
        assert_eq!((reply.0.len(), reply.len()), (3, 5 + MIN_PASSED));
        assert_eq!(reply.0[1].as_ptr(), request[5..].as_ptr());
    }

    #[test]
    fn what_is_not_of_the_request_is_copied() {
        let request = Bytes::from_static(b"abc");
        let mut writer = Writer::new(&request);
        writer.pass("elsewhere");
        assert_eq!(whole(&writer.finish()), b"elsewhere");
        assert!(Writer::new(&request).finish().is_empty());
    }

    proptest::proptest! {
        #[test]
        fn pieces_in_any_order_are_what_they_would_be_copied(
            request in "[a-c,]{0,40}",
            steps in proptest::collection::vec((0_usize..4_000, 0_usize..4_000, "[,x]{0,2}"), 0..20),
        ) {
            let request = Bytes::from(request.repeat(100));
            let read = std::str::from_utf8(&request).unwrap();
            let (mut writer, mut copied) = (Writer::new(&request), Vec::new());
            for (one, other, own) in steps {
                let (one, other) = (one.min(read.len()), other.min(read.len()));
                let piece = &read[one.min(other)..one.max(other)];
                writer.pass(piece);
                writer.text().extend_from_slice(own.as_bytes());
                copied.extend_from_slice(piece.as_bytes());
                copied.extend_from_slice(own.as_bytes());
            }
            let reply = writer.finish();
            proptest::prop_assert_eq!(reply.len(), copied.len());
            proptest::prop_assert_eq!(whole(&reply), copied);
        }
    }
}
