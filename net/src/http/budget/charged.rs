//! An answer that is being sent: it holds its bytes of the budget until then.

use axum::body::{Body, Bytes};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::task::{Context, Poll};

/// Answers are handed to the connection in pieces of this size, in bytes, so that the memory of sent pieces is freed.
pub(super) const PIECE_BYTES: usize = 64 * 1024;

/// An answer that holds `C`, its bytes of the budget, until it is sent or dropped.
pub(super) struct Charged<C> {
    body: Body,
    /// The unsent rest of a frame of the body.
    rest: Bytes,
    _charge: C,
}

impl<C> Charged<C> {
    /// Wraps `body`, which holds `charge` until it is sent or dropped.
    pub(super) fn new(body: Body, charge: C) -> Self {
        Self { body, rest: Bytes::new(), _charge: charge }
    }
}

impl<C: Unpin> hyper::body::Body for Charged<C> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if self.rest.is_empty() {
            match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                other => return other,
            }
        }
        let length = self.rest.len().min(PIECE_BYTES);
        let piece = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (SizeHint::new(), self.rest.len() as u64);
        let body = self.body.size_hint();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
