//! A connected stream socket whose writes never raise SIGPIPE, and which is watched for room to write only while it
//! is full.
//!
//! The vectored writes of std and tokio are `writev`, which raises SIGPIPE when the other end has gone and so kills a
//! C program with default signal handling. Here every write is a `sendmsg` with `MSG_NOSIGNAL`.
//!
//! A unix socket becomes writable again whenever the other end reads. Watching for that all the time would wake a
//! thread that waits for an answer twice.
#![allow(unsafe_code)]

use crate::descriptor::{Beside, Watched};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, sendmsg, shutdown};
use std::io::{self, IoSlice};
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// A connected socket.
#[derive(Debug)]
pub struct Socket<B = ()> {
    readable: Watched<B>,
    /// A second descriptor of the same socket, open while the socket is full.
    writable: Option<Watched<B>>,
}

impl<B: Beside> Socket<B> {
    /// Registers a non-blocking stream socket with the runtime of the calling thread.
    ///
    /// # Errors
    /// The system's error if the socket cannot be registered.
    pub fn new(socket: OwnedFd) -> io::Result<Self> {
        Ok(Self { readable: Watched::new(socket, Interest::READABLE)?, writable: None })
    }
}

/// Receives into the unfilled part of `buf`; 0 bytes mean the end of the stream.
fn receive(socket: &OwnedFd, buf: &mut ReadBuf<'_>) -> io::Result<usize> {
    // SAFETY: no byte becomes uninitialised through this reference, since the kernel only writes bytes to it.
    let unfilled = unsafe { buf.unfilled_mut() };
    // SAFETY: pointer and length describe memory that is ours to write for the duration of the call.
    let received = unsafe { libc::recv(socket.as_raw_fd(), unfilled.as_mut_ptr().cast(), unfilled.len(), 0) };
    let received = usize::try_from(received).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written this many bytes at the beginning of the unfilled part.
    unsafe { buf.assume_init(received) };
    buf.advance(received);
    Ok(received)
}

impl<B: Unpin> AsyncRead for Socket<B> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let wanted = buf.remaining();
        loop {
            let mut ready = ready!(self.readable.fd.poll_read_ready(cx))?;
            match receive(ready.get_inner(), buf) {
                Ok(received) => {
                    // Fewer bytes than wanted: the socket is empty now, and the next byte makes it ready again
                    // (edge-triggered), so clearing saves a read in vain. At the end of the stream (0 bytes) it stays
                    // ready.
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

impl<B: Beside + Unpin> AsyncWrite for Socket<B> {
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
            let socket = self.readable.fd.get_ref();
            match sendmsg::<()>(socket.as_raw_fd(), bufs, &[], MsgFlags::MSG_NOSIGNAL, None) {
                Ok(sent) => return Poll::Ready(Ok(sent)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => {
                    self.writable = Some(Watched::new(socket.try_clone()?, Interest::WRITABLE)?);
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
            // The other side has ended the connection already.
            Ok(()) | Err(Errno::ENOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::fd::{BorrowedFd, RawFd};
    use std::os::unix::net::UnixStream;
    use std::sync::Mutex;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Duration, timeout};

    /// A socket under test, and the other end.
    fn pair<B: Beside>() -> (Socket<B>, UnixStream) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        (Socket::new(ours.into()).unwrap(), theirs)
    }

    #[tokio::test]
    async fn a_full_socket_takes_the_rest_when_the_other_end_reads_and_is_answered() {
        let (mut socket, mut theirs) = pair::<()>();
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            theirs.read_to_end(&mut all).unwrap();
            theirs.write_all(b"answer").unwrap();
            all
        });
        let bytes: Vec<u8> = (0..8 << 20).map(|n: u32| n.to_le_bytes()[1]).collect();
        socket.write_all(&bytes).await.unwrap();
        socket.shutdown().await.unwrap();
        let mut answer = Vec::new();
        socket.read_to_end(&mut answer).await.unwrap();
        assert_eq!(answer, b"answer");
        assert!(reader.join().unwrap() == bytes);
    }

    #[tokio::test]
    async fn everything_that_is_sent_is_received_however_it_comes() {
        let (mut socket, mut theirs) = pair::<()>();
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
    }

    #[tokio::test]
    async fn writing_to_a_closed_socket_is_an_error() {
        let (mut socket, theirs) = pair::<()>();
        drop(theirs);
        assert_eq!(socket.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    /// The open descriptors that have a `Noted` beside them.
    static OPEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

    struct Noted(RawFd);

    impl Beside for Noted {
        fn of(fd: BorrowedFd<'_>) -> Self {
            OPEN.lock().unwrap().push(fd.as_raw_fd());
            Self(fd.as_raw_fd())
        }
    }

    impl Drop for Noted {
        fn drop(&mut self) {
            assert!(std::fs::exists(format!("/proc/self/fd/{}", self.0)).unwrap(), "closed before");
            OPEN.lock().unwrap().retain(|fd| *fd != self.0);
        }
    }

    #[tokio::test]
    async fn each_descriptor_has_its_own_beside_it_until_it_is_closed() {
        let open = || OPEN.lock().unwrap().len();
        let (mut socket, _theirs) = pair::<Noted>();
        assert_eq!(open(), 1);
        let written = timeout(Duration::from_millis(1), socket.write_all(&[7; 8 << 20])).await;
        assert!(written.is_err(), "nobody reads");
        assert_eq!(open(), 2);
        drop(socket);
        assert_eq!(open(), 0);
    }
}
