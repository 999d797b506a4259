//! gRPC framing: splits a request's body into encoded messages, and encodes messages into a response's body.
//!
//! Each message gets memory of exactly its own length, so that a reference to a part of it keeps nothing else in
//! memory. Until the handshake has passed, a message may be only as long as a Hello.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use fpga_protocol::limits::MAX_MESSAGE_BYTES;
use fpga_session::incoming::Incoming;
use fpga_session::outgoing::Said;
use hyper::body::Body;
use prost::Message as _;
use std::future::poll_fn;
use std::pin::Pin;
use tonic::Status;
use tonic::codec::{BufferSettings, EncodeBuf, Encoder};

/// A frame's header: one byte for compression, and four bytes with the length.
const HEADER_BYTES: usize = 5;

/// Maximum length of a Hello in bytes, with the longest token.
const MAX_HELLO_BYTES: usize = 32 << 10;

/// The encoded messages of a request's body.
#[derive(Debug)]
pub struct GrpcFrames<B> {
    body: B,
    /// Bytes that have arrived and are not yet part of a message.
    data: Bytes,
    header: BytesMut,
    /// The message that is being received, and its length.
    message: Option<(BytesMut, usize)>,
    most: usize,
}

impl<B> GrpcFrames<B> {
    /// The messages of `body`. They may be as long as a Hello until [`Self::handshake_passed`].
    #[must_use]
    pub fn new(body: B) -> Self {
        let header = BytesMut::with_capacity(HEADER_BYTES);
        Self { body, data: Bytes::new(), header, message: None, most: MAX_HELLO_BYTES }
    }

    /// Allows messages of the full length from now on.
    pub fn handshake_passed(&mut self) {
        self.most = MAX_MESSAGE_BYTES;
    }

    /// Consumes received bytes. Returns a message if it is complete.
    fn take(&mut self) -> Result<Option<Bytes>, Status> {
        if self.message.is_none() {
            let wanted = (HEADER_BYTES - self.header.len()).min(self.data.len());
            self.header.put(self.data.split_to(wanted));
            if self.header.len() < HEADER_BYTES {
                return Ok(None);
            }
            if self.header.get_u8() != 0 {
                return Err(Status::unimplemented("this device manager takes no compressed messages"));
            }
            let length = usize::try_from(self.header.get_u32()).unwrap_or(usize::MAX);
            if length > self.most {
                let most = self.most;
                return Err(Status::out_of_range(format!(
                    "a message of {length} bytes is too long; at most {most} are taken{}",
                    if most < MAX_MESSAGE_BYTES { " before the handshake" } else { "" }
                )));
            }
            self.header.reserve(HEADER_BYTES);
            self.message = Some((BytesMut::with_capacity(length), length));
        }
        let Some((message, length)) = &mut self.message else { return Ok(None) };
        let wanted = (*length - message.len()).min(self.data.len());
        message.put(self.data.split_to(wanted));
        if message.len() < *length {
            return Ok(None);
        }
        Ok(self.message.take().map(|(message, _)| message.freeze()))
    }

    fn is_between_messages(&self) -> bool {
        self.message.is_none() && self.header.is_empty()
    }
}

impl<B> Incoming for GrpcFrames<B>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>> + Unpin + Send,
{
    async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.take()? {
                return Ok(Some(message));
            }
            // All received bytes are consumed.
            match poll_fn(|context| Pin::new(&mut self.body).poll_frame(context)).await {
                None if self.is_between_messages() => return Ok(None),
                None => return Err(Status::invalid_argument("the stream ends within a message")),
                Some(Err(error)) => return Err(Status::from_error(error.into())),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.data = data;
                    }
                }
            }
        }
    }
}

/// Encodes messages to a client.
#[derive(Debug, Default)]
pub struct SaidEncoder;

impl Encoder for SaidEncoder {
    type Item = Said;
    type Error = Status;

    fn encode(&mut self, said: Said, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        match said {
            Said::Message(message) => {
                message.encode(out).map_err(|error| Status::internal(error.to_string()))?;
            }
            Said::Encoded(bytes) => out.put(bytes),
        }
        Ok(())
    }

    fn buffer_settings(&self) -> BufferSettings {
        BufferSettings::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::body::Frame;
    use proptest::prelude::*;
    use std::collections::VecDeque;
    use std::convert::Infallible;
    use std::task::{Context, Poll};

    struct Parts(VecDeque<Bytes>);

    impl Body for Parts {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            Poll::Ready(self.0.pop_front().map(|data| Ok(Frame::data(data))))
        }
    }

    fn grpc(message: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0];
        bytes.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(message);
        bytes
    }

    /// All messages of `bytes`, received in parts that end at `cuts`, and the error at the end.
    fn messages(bytes: &[u8], cuts: &[usize]) -> (Vec<Bytes>, Option<Status>) {
        let (mut parts, mut rest) = (VecDeque::new(), Bytes::copy_from_slice(bytes));
        for cut in cuts {
            parts.push_back(rest.split_to((*cut).min(rest.len())));
        }
        parts.push_back(rest);
        let mut frames = GrpcFrames::new(Parts(parts));
        let mut all = Vec::new();
        let next = |frames: &mut GrpcFrames<Parts>| {
            let mut next = std::pin::pin!(frames.next());
            let mut context = Context::from_waker(std::task::Waker::noop());
            match next.as_mut().poll(&mut context) {
                Poll::Ready(next) => next,
                Poll::Pending => panic!("the body never waits"),
            }
        };
        loop {
            match next(&mut frames) {
                Ok(Some(message)) => all.push(message),
                Ok(None) => return (all, None),
                Err(status) => return (all, Some(status)),
            }
        }
    }

    proptest! {
        #[test]
        fn messages_come_out_as_they_went_in_however_they_are_cut(
            contents in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..50), 0..8),
            cuts in prop::collection::vec(0_usize..30, 0..20),
        ) {
            let bytes: Vec<u8> = contents.iter().flat_map(|content| grpc(content)).collect();
            let (messages, error) = messages(&bytes, &cuts);
            prop_assert!(error.is_none());
            prop_assert_eq!(messages, contents);
        }
    }

    #[test]
    fn a_message_that_is_longer_than_a_hello_is_refused_before_the_handshake() {
        let hello = grpc(&vec![7; MAX_HELLO_BYTES]);
        assert_eq!(messages(&hello, &[]).0[0].len(), MAX_HELLO_BYTES);
        let (messages, error) = messages(&grpc(&vec![7; MAX_HELLO_BYTES + 1])[..HEADER_BYTES], &[]);
        assert!(messages.is_empty());
        assert_eq!(error.unwrap().code(), tonic::Code::OutOfRange);
    }

    #[test]
    fn what_is_cut_off_or_compressed_is_an_error() {
        let whole = grpc(b"hello");
        for cut in 1..whole.len() {
            let (messages, error) = messages(&whole[..cut], &[]);
            assert!(messages.is_empty() && error.is_some(), "{cut}");
        }
        assert_eq!(messages(&[1, 0, 0, 0, 0], &[]).1.unwrap().code(), tonic::Code::Unimplemented);
    }
}
