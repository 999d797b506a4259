//! The socket to a manager: whatever is written to it, the process never gets a SIGPIPE.
//!
//! std's and tokio's vectored writes are `writev`, which raises SIGPIPE when the manager is gone and so kills a C
//! program with default signal handling; here every write is a `sendmsg` with `MSG_NOSIGNAL`.

use crate::address::ManagerAddress;
use crate::fork::ClosedInChildren;
use nix::sys::socket::{MsgFlags, sendmsg, setsockopt, sockopt};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Seconds without a byte after which the kernel asks the other end.
const KEEPALIVE_IDLE_S: u32 = 15;
/// Seconds between its questions.
const KEEPALIVE_INTERVAL_S: u32 = 5;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    // Forgotten before the descriptor is closed: fields drop in this order.
    _closed_in_children: ClosedInChildren,
    stream: Stream,
}

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Socket {
    /// Connects; `resolved` are the addresses of a TCP manager.
    pub(crate) async fn connect(address: &ManagerAddress, resolved: &[SocketAddr]) -> io::Result<Self> {
        let stream = match address {
            ManagerAddress::Unix(path) => Stream::Unix(UnixStream::connect(path).await?),
            ManagerAddress::Tcp(_) => {
                let stream = TcpStream::connect(resolved).await?;
                // A command is small and somebody waits for its answer: never held back for more.
                stream.set_nodelay(true)?;
                notice_silent_death(&stream)?;
                Stream::Tcp(stream)
            }
        };
        Ok(Self { _closed_in_children: ClosedInChildren::register(&stream), stream })
    }
}

/// Has the kernel end a connection whose other end fell silent (a node without power says no goodbye), after
/// [`KEEPALIVE_IDLE_S`] + 3 × [`KEEPALIVE_INTERVAL_S`], or half a minute with data on its way.
fn notice_silent_death(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KEEPALIVE_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KEEPALIVE_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &3)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &30_000)
}

impl AsRawFd for Stream {
    fn as_raw_fd(&self) -> RawFd {
        match self {
            Self::Unix(stream) => stream.as_raw_fd(),
            Self::Tcp(stream) => stream.as_raw_fd(),
        }
    }
}

impl Stream {
    fn poll_write_ready(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Unix(stream) => stream.poll_write_ready(cx),
            Self::Tcp(stream) => stream.poll_write_ready(cx),
        }
    }

    fn try_write(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        let fd = self.as_raw_fd();
        let send = || Ok(sendmsg::<()>(fd, bufs, &[], MsgFlags::MSG_NOSIGNAL, None)?);
        match self {
            Self::Unix(stream) => stream.try_io(Interest::WRITABLE, send),
            Self::Tcp(stream) => stream.try_io(Interest::WRITABLE, send),
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.stream.poll_write_ready(cx))?;
            match self.stream.try_write(bufs) {
                // Not writable after all: the readiness is cleared, ask again.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return Poll::Ready(result),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
