//! A stream that records when bytes are read and written, and the timeout over these records.

use super::connection_limit::{ConnectionActivity, ConnectionState};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, sleep_until};

/// The stream `S`, whose reads and writes are recorded in `activity`.
pub struct Watched<S> {
    stream: S,
    activity: Arc<ConnectionActivity>,
}

/// Waits until the connection has been in one state for too long, and returns that state. The state is polled, so
/// that the connection's own steps need no timer; a slow connection ends after one to two times the allowed time.
pub async fn too_slow(activity: &ConnectionActivity, head: Duration, idle: Duration) -> ConnectionState {
    loop {
        let now = Instant::now();
        let state = activity.state();
        let deadline = match state {
            // The handler has its own time limits.
            ConnectionState::Request | ConnectionState::Body(_) => now + head,
            ConnectionState::Beginning(since) | ConnectionState::Head(since) => since + head,
            ConnectionState::Resting(since) => since + idle,
        };
        if deadline <= now {
            return state;
        }
        sleep_until(deadline.min(now + head)).await;
    }
}

impl<S> Watched<S> {
    /// Wraps `stream`; its reads and writes are recorded in `activity`.
    pub fn new(stream: S, activity: Arc<ConnectionActivity>) -> Self {
        Self { stream, activity }
    }

    fn written(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.activity.bytes_written();
        }
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.activity.bytes_read();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.written(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
