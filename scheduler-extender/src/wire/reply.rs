//! Answers, composed of new text and of pieces of the request.
//!
//! Pieces of the request are not copied: 5,000 whole nodes are 30 MB. Nodes that are adjacent in the request mostly
//! stay adjacent and become one piece.

use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Composes an answer.
#[derive(Debug)]
pub struct Writer<'r> {
    request: &'r Bytes,
    done: VecDeque<Bytes>,
    /// The next piece is this range of the request, then `text`.
    taken: Range<usize>,
    text: Vec<u8>,
}

/// An answer, ready to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply(VecDeque<Bytes>);

impl<'r> Writer<'r> {
    /// Begins an answer to `request`.
    #[must_use]
    pub fn new(request: &'r Bytes) -> Self {
        Self { request, done: VecDeque::new(), taken: 0..0, text: Vec::new() }
    }

    /// The new text; what is appended follows the pieces so far.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.text
    }

    /// Appends `piece`, without copying it if it lies in the request.
    pub fn pass(&mut self, piece: &str) {
        let Some(range) = self.place(piece) else {
            self.text.extend_from_slice(piece.as_bytes());
            return;
        };
        let between = self.request.get(self.taken.end..range.start);
        if !self.taken.is_empty() && between == Some(self.text.as_slice()) {
            self.text.clear();
            self.taken.end = range.end;
        } else {
            self.flush();
            self.taken = range;
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
        let taken = std::mem::replace(&mut self.taken, 0..0);
        let text = std::mem::take(&mut self.text);
        let pieces = [self.request.slice(taken), Bytes::from(text)];
        self.done.extend(pieces.into_iter().filter(|piece| !piece.is_empty()));
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
    fn neighbours_of_the_request_go_back_as_one_piece_that_is_not_copied() {
        let text = String::from("[one,two, three,four]");
        let request = Bytes::from(text);
        let read = std::str::from_utf8(&request).unwrap();
        let mut writer = Writer::new(&request);
        writer.text().push(b'<');
        for (index, piece) in [&read[1..4], &read[5..8], &read[10..15], &read[16..20]].into_iter().enumerate()
        {
            if index > 0 {
                writer.text().push(b',');
            }
            writer.pass(piece);
        }
        writer.text().push(b'>');
        let reply = writer.finish();
        assert_eq!(whole(&reply), b"<one,two,three,four>");
        assert_eq!(reply.len(), 20);
        assert_eq!(reply.0.len(), 5, "the space before the third parts it from the second: {reply:?}");
        assert_eq!(reply.0[1].as_ptr(), request[1..].as_ptr());
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
            steps in proptest::collection::vec((0_usize..40, 0_usize..40, "[,x]{0,2}"), 0..20),
        ) {
            let request = Bytes::from(request);
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
