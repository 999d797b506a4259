//! The socket to a manager: whatever is written to it, the process never gets a SIGPIPE.
//!
//! std's and tokio's vectored writes are `writev`, which raises SIGPIPE when the manager is gone and so kills a C
//! program with default signal handling; here every write is a `sendmsg` with `MSG_NOSIGNAL`.
//!
//! The runtime watches for readability only, and for writability just while the socket is full: a unix socket reports
//! itself writable whenever the manager has read something, which would wake the thread that waits for an answer twice.
#![allow(unsafe_code)]

use crate::address::ManagerAddress;
use crate::fork::ClosedInChildren;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, sendmsg, setsockopt, shutdown, sockopt};
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// Seconds without a byte after which the kernel asks the other end.
const KEEPALIVE_IDLE_S: u32 = 15;
/// Seconds between its questions.
const KEEPALIVE_INTERVAL_S: u32 = 5;

/// A connected socket.
#[derive(Debug)]
pub(crate) struct Socket {
    readable: Watched,
    /// A second descriptor of the same socket, while it is full.
    writable: Option<Watched>,
}

/// A descriptor that the runtime watches.
#[derive(Debug)]
struct Watched {
    // Forgotten before the descriptor is closed: fields drop in this order.
    _closed_in_children: ClosedInChildren,
    fd: AsyncFd<OwnedFd>,
}

impl Watched {
    fn new(fd: OwnedFd, interest: Interest) -> io::Result<Self> {
        let closed_in_children = ClosedInChildren::register(&fd);
        // SAFETY: an `OwnedFd` is one open descriptor until it is dropped, which only the `AsyncFd` does. (A forked
        // child closes its copy behind our back, and never touches this object again.)
        let fd = unsafe { AsyncFd::register_with_interest(fd, interest) }?;
        Ok(Self { _closed_in_children: closed_in_children, fd })
    }
}

impl Socket {
    /// Connects; `resolved` are the addresses of a TCP manager.
    pub(crate) async fn connect(address: &ManagerAddress, resolved: &[SocketAddr]) -> io::Result<Self> {
        let fd = match address {
            ManagerAddress::Unix(path) => OwnedFd::from(UnixStream::connect(path).await?.into_std()?),
            ManagerAddress::Tcp(_) => {
                let stream = TcpStream::connect(resolved).await?;
                // A command is small and somebody waits for its answer: never held back for more.
                stream.set_nodelay(true)?;
                notice_silent_death(&stream)?;
                OwnedFd::from(stream.into_std()?)
            }
        };
        Ok(Self { readable: Watched::new(fd, Interest::READABLE)?, writable: None })
    }

    fn send(&self, bufs: &[IoSlice<'_>]) -> nix::Result<usize> {
        sendmsg::<()>(self.readable.fd.as_raw_fd(), bufs, &[], MsgFlags::MSG_NOSIGNAL, None)
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

/// Our end of a socket by which a manager and this process wake each other.
#[derive(Debug)]
pub(crate) struct Doorbell(Watched);

impl Doorbell {
    /// Of a socket that was passed; where a runtime is entered.
    pub(crate) fn new(fd: OwnedFd) -> io::Result<Self> {
        Watched::new(fd, Interest::READABLE).map(Self)
    }

    /// Wakes the manager. Where that has gone, or was woken often enough already, there is nothing to do.
    pub(crate) fn ring(&self) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let _ = sendmsg::<()>(self.0.fd.as_raw_fd(), &[IoSlice::new(&[1])], &[], flags, None);
    }

    /// Has [`Self::rung`] fail, here and with the manager.
    pub(crate) fn close(&self) {
        let _ = shutdown(self.0.fd.as_raw_fd(), Shutdown::Both);
    }

    /// Waits until the manager has rung.
    pub(crate) async fn rung(&self) -> io::Result<()> {
        let mut bytes = [0; 64];
        loop {
            let mut ready = self.0.fd.readable().await?;
            // Before the bytes are taken: what comes meanwhile makes it ready again.
            ready.clear_ready();
            match recv(ready.get_inner().as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(()),
                Err(Errno::EAGAIN | Errno::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Receives into what is unfilled of `buf`; 0 bytes at the end of the stream.
fn receive(socket: &OwnedFd, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
    // SAFETY: nothing is uninitialised through this reference: the kernel only writes bytes to it.
    let unfilled = unsafe { buf.unfilled_mut() };
    // SAFETY: the pointer and the length are those of memory that is ours to write, for the length of the call.
    let received = unsafe { libc::recv(socket.as_raw_fd(), unfilled.as_mut_ptr().cast(), unfilled.len(), 0) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written this many bytes at the beginning of what was unfilled.
    unsafe { buf.assume_init(received) };
    buf.advance(received);
    Ok(received)
}

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let wanted = buf.remaining();
        loop {
            let mut ready = ready!(self.readable.fd.poll_read_ready(cx))?;
            match receive(ready.get_inner(), buf) {
                Ok(received) => {
                    // Less than wanted: it is empty now, and readiness comes with the next byte (edges), so that
                    // nobody has to try in vain. The end of the stream stays.
                    if 0 < received && received < wanted {
                        ready.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(buf)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(writable) = &self.writable {
                drop(ready!(writable.fd.poll_write_ready(cx))?);
                self.writable = None;
            }
            match self.send(bufs) {
                Ok(sent) => return Poll::Ready(Ok(sent)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    let same_socket = self.readable.fd.get_ref().try_clone()?;
                    self.writable = Some(Watched::new(same_socket, Interest::WRITABLE)?);
                }
                Err(error) => return Poll::Ready(Err(error.into())),
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match shutdown(self.readable.fd.as_raw_fd(), Shutdown::Write) {
            // Already ended by the other side.
            Ok(()) | Err(Errno::ENOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// A socket of ours, and the other end.
    fn pair() -> (Socket, net::UnixStream) {
        let (ours, theirs) = net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Socket { readable: Watched::new(ours.into(), Interest::READABLE).unwrap(), writable: None }, theirs)
    }

    fn run(test: impl Future<Output = ()>) {
        tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap().block_on(test);
    }

    #[test]
    fn a_full_socket_takes_the_rest_when_the_other_end_reads() {
        run(async {
            let (mut socket, mut theirs) = pair();
            let reader = std::thread::spawn(move || {
                let mut all = Vec::new();
                theirs.read_to_end(&mut all).unwrap();
                all
            });
            let bytes: Vec<u8> = (0..8 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
            socket.write_all(&bytes).await.unwrap();
            socket.shutdown().await.unwrap();
            assert!(reader.join().unwrap() == bytes);
        });
    }

    #[test]
    fn everything_that_is_sent_is_received_however_it_comes() {
        run(async {
            let (mut socket, mut theirs) = pair();
            let writer = std::thread::spawn(move || {
                for part in 0..2000u32 {
                    let len = (part % 97) as usize * 50;
                    theirs.write_all(&vec![part.to_le_bytes()[0]; len]).unwrap();
                }
            });
            let mut all = Vec::new();
            socket.read_to_end(&mut all).await.unwrap();
            writer.join().unwrap();
            let expected = (0..2000u32)
                .flat_map(|part| std::iter::repeat_n(part.to_le_bytes()[0], (part % 97) as usize * 50));
            assert!(all.into_iter().eq(expected));
        });
    }

    #[test]
    fn writing_to_a_closed_socket_is_an_error() {
        run(async {
            let (mut socket, theirs) = pair();
            drop(theirs);
            assert_eq!(socket.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        });
    }
}
