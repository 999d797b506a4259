//! A connection's socket on its thread's runtime: watched for what the client sends, and for room only while it is full.
//!
//! A unix socket reports itself writable whenever the client has read something. Watching for that all the time wakes
//! the thread once more for every answer.

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, sendmsg, shutdown};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A connected socket.
#[derive(Debug)]
pub struct Socket {
    readable: AsyncFd<OwnedFd>,
    /// A second descriptor of the same socket, while it is full.
    full: Option<AsyncFd<OwnedFd>>,
}

impl Socket {
    /// Registers a non-blocking stream socket with the runtime of the calling thread.
    ///
    /// # Errors
    /// The system's.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { readable: watch(socket, Interest::READABLE)?, full: None })
    }
}

/// Registers a non-blocking socket.
pub(crate) fn watch(socket: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` is one open descriptor until it is dropped, which only the `AsyncFd` does.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

/// Receives into what is unfilled of `buf`; 0 bytes at the end of the stream.
fn receive(socket: &OwnedFd, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
    // SAFETY: nothing is uninitialised through this reference: the kernel only writes bytes to it.
    let unfilled = unsafe { buf.unfilled_mut() };
    // SAFETY: the pointer and the length are those of memory that is ours to write, for the length of the call.
    let received = unsafe { libc::recv(socket.as_raw_fd(), unfilled.as_mut_ptr().cast(), unfilled.len(), 0) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written as many bytes at the start of what was unfilled.
    unsafe { buf.assume_init(received) };
    buf.advance(received);
    Ok(received)
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let wanted = buf.remaining();
        loop {
            let mut guard = ready!(self.readable.poll_read_ready(context))?;
            match receive(guard.get_inner(), buf) {
                Ok(received) => {
                    // Less than wanted: it is empty now, and the next byte will tell, so that nobody tries in vain.
                    // The end of the stream stays.
                    if 0 < received && received < wanted {
                        guard.clear_ready();
                    }
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => guard.clear_ready(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        loop {
            if let Some(full) = &self.full {
                drop(ready!(full.poll_write_ready(context))?);
                self.full = None;
            }
            let socket = self.readable.get_ref();
            match sendmsg::<()>(socket.as_raw_fd(), slices, &[], MsgFlags::MSG_NOSIGNAL, None) {
                Ok(sent) => return Poll::Ready(Ok(sent)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => self.full = Some(watch(socket.try_clone()?, Interest::WRITABLE)?),
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
        match shutdown(self.readable.get_ref().as_raw_fd(), Shutdown::Write) {
            // Already ended by the other side.
            Ok(()) | Err(Errno::ENOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    #[tokio::test]
    async fn a_full_socket_goes_on_when_the_other_end_reads() {
        const SIZE: usize = 8 << 20;
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut ours = Socket::new(ours.into()).unwrap();
        let mut theirs = Socket::new(theirs.into()).unwrap();
        let bytes: Vec<u8> = (0..SIZE).map(|at| at.to_le_bytes()[1]).collect();
        let mut received = Vec::new();
        let send = async {
            ours.write_all(&bytes).await.unwrap();
            ours.shutdown().await.unwrap();
        };
        tokio::join!(send, async { theirs.read_to_end(&mut received).await.unwrap() });
        assert!(received == bytes);
        theirs.write_all(b"answer").await.unwrap();
        drop(theirs);
        let mut answer = Vec::new();
        ours.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
    }
}
