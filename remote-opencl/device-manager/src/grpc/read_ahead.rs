//! A bound on how far a connection is read ahead of its sessions.
//!
//! HTTP/2's window counts the data of frames, and h2 bounds how many short frames wait. But a frame that waits for
//! its session keeps the whole buffer in memory that it was read into. With frames of other kinds in between, that
//! is one buffer for each byte of data. So the bytes of the socket are counted instead: while data waits for a
//! session, at most about [`READ_AHEAD_BYTES`] more are read from the socket, until the session has taken all data
//! that has arrived.
//!
//! While all sessions wait for data, any number of bytes may be read, since frames without data keep no buffer. The
//! waker with which a session waits tells when data has arrived.

use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;

/// Number of bytes that a connection reads from its socket while data waits for one of its sessions.
pub(crate) const READ_AHEAD_BYTES: u64 = 256 << 10;

/// How far a connection is ahead of its sessions. Clones share the state.
#[derive(Debug, Clone, Default)]
pub(crate) struct ReadAhead(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// Number of sessions for which data waits.
    behind: usize,
    /// Number of bytes read since the first of these sessions fell behind.
    bytes: u64,
    /// Wakes the connection if it has stopped reading.
    reader: Option<Waker>,
    /// When bytes were read last.
    last_read: Option<Instant>,
}

/// The stream of a connection, which is read only as far as [`ReadAhead`] allows.
#[derive(Debug)]
pub(crate) struct BoundedStream<S> {
    stream: S,
    ahead: ReadAhead,
}

/// The body of a session's request. It tells [`ReadAhead`] whether data waits in it.
#[derive(Debug)]
pub struct TrackedBody<B> {
    body: B,
    arrival: Arc<Arrival>,
    /// The waker of `arrival`.
    waker: Waker,
}

/// Tracks the arrival of data for one session.
#[derive(Debug)]
struct Arrival {
    ahead: ReadAhead,
    session: Mutex<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    is_behind: bool,
    /// Whether the waker was called since the session last looked for data.
    was_woken: bool,
    waker: Waker,
}

impl ReadAhead {
    pub(crate) fn stream<S>(&self, stream: S) -> BoundedStream<S> {
        BoundedStream { stream, ahead: self.clone() }
    }

    pub(crate) fn body<B>(&self, body: B) -> TrackedBody<B> {
        // Data may have arrived together with the request.
        self.0.lock().behind += 1;
        let session = Mutex::new(Waiting { is_behind: true, was_woken: false, waker: Waker::noop().clone() });
        let arrival = Arc::new(Arrival { ahead: self.clone(), session });
        TrackedBody { body, waker: arrival.clone().into(), arrival }
    }

    /// Whether the connection may read. If not, `context` is woken once the sessions have taken the data that has
    /// arrived.
    fn poll_may_read(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.0.lock();
        if state.behind == 0 || state.bytes < READ_AHEAD_BYTES {
            return Poll::Ready(());
        }
        state.reader = Some(context.waker().clone());
        Poll::Pending
    }

    /// When bytes were read last; now, while the connection does not read, since nobody could be heard.
    pub(crate) fn last_read(&self) -> Instant {
        let state = self.0.lock();
        let now = Instant::now();
        if state.reader.is_some() { now } else { state.last_read.unwrap_or(now) }
    }

    fn was_read(&self, bytes: usize) {
        let mut state = self.0.lock();
        state.last_read = Some(Instant::now());
        if state.behind > 0 {
            state.bytes = state.bytes.saturating_add(bytes as u64);
        }
    }

    fn fell_behind(&self) {
        self.0.lock().behind += 1;
    }

    fn caught_up(&self) {
        let reader = {
            let mut state = self.0.lock();
            state.behind -= 1;
            if state.behind > 0 {
                return;
            }
            state.bytes = 0;
            state.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

impl Arrival {
    /// Records that the session looks for data, and calls `waker` when data arrives later.
    fn look(&self, waker: &Waker) {
        let mut session = self.session.lock();
        session.was_woken = false;
        if !session.waker.will_wake(waker) {
            session.waker = waker.clone();
        }
    }

    /// Records that the session has found no data. If data arrived in the meantime, the waker was called and the
    /// session stays behind.
    fn found_nothing(&self) {
        let mut session = self.session.lock();
        if !session.was_woken {
            self.set(&mut session, false);
        }
    }

    fn set_behind(&self, is_behind: bool) {
        self.set(&mut self.session.lock(), is_behind);
    }

    /// Changes the state of a session. The caller holds the session's lock, so that the counts follow the changes
    /// in order.
    fn set(&self, session: &mut Waiting, is_behind: bool) {
        if session.is_behind != is_behind {
            session.is_behind = is_behind;
            if is_behind { self.ahead.fell_behind() } else { self.ahead.caught_up() }
        }
    }
}

impl Wake for Arrival {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = {
            let mut session = self.session.lock();
            session.was_woken = true;
            self.set(&mut session, true);
            session.waker.clone()
        };
        waker.wake();
    }
}

impl<B> Body for TrackedBody<B>
where
    B: Body + Unpin,
{
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let Self { body, arrival, waker } = &mut *self;
        arrival.look(context.waker());
        let polled = Pin::new(body).poll_frame(&mut Context::from_waker(waker));
        match &polled {
            Poll::Pending => arrival.found_nothing(),
            // The body may have more data.
            Poll::Ready(Some(Ok(_))) => arrival.set_behind(true),
            Poll::Ready(_) => arrival.set_behind(false),
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for TrackedBody<B> {
    fn drop(&mut self) {
        // HTTP/2 discards data of a dropped body.
        self.arrival.set_behind(false);
    }
}

impl<S> AsyncRead for BoundedStream<S>
where
    S: AsyncRead + Unpin,
{
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        ready!(self.ahead.poll_may_read(context));
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buf))?;
        self.ahead.was_read(buf.filled().len() - before);
        Poll::Ready(Ok(()))
    }
}

impl<S> AsyncWrite for BoundedStream<S>
where
    S: AsyncWrite + Unpin,
{
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests;
