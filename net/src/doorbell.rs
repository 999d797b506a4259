//! A socket by which two processes wake each other: a byte means that there is something to look at.

use crate::descriptor::{Beside, Watched};
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, Shutdown, recv, send, shutdown};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use tokio::io::Interest;

/// This process's end of the socket.
#[derive(Debug)]
pub struct Doorbell<B = ()>(Watched<B>);

impl<B: Beside> Doorbell<B> {
    /// Registers a connected socket with the runtime of the calling thread.
    ///
    /// # Errors
    /// The system's error if the socket cannot be registered.
    pub fn new(fd: OwnedFd) -> io::Result<Self> {
        Watched::new(fd, Interest::READABLE).map(Self)
    }

    /// Wakes the other side. Does nothing if the other side has gone, or if the socket is full of unread bytes.
    pub fn ring(&self) {
        let _ = send(self.0.fd.as_raw_fd(), &[1], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
    }

    /// Makes [`Self::rung`] fail on both sides.
    pub fn close(&self) {
        let _ = shutdown(self.0.fd.as_raw_fd(), Shutdown::Both);
    }

    /// Waits until the other side has rung, once or more often.
    ///
    /// # Errors
    /// `UnexpectedEof` if either side has closed the socket; else the system's error.
    pub async fn rung(&self) -> io::Result<()> {
        let mut ready = self.0.fd.readable().await?;
        // Clear before reading: a byte that arrives meanwhile makes the socket ready again.
        ready.clear_ready();
        silence(ready.get_inner())
    }
}

/// Reads all bytes that have arrived.
fn silence(bell: &OwnedFd) -> io::Result<()> {
    let mut bytes = [0; 64];
    loop {
        match recv(bell.as_raw_fd(), &mut bytes, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(taken) if taken < bytes.len() => return Ok(()),
            Ok(_) | Err(Errno::EINTR) => {}
            // The socket is empty: all bytes were read, or the wakeup was spurious, which costs the caller one look.
            Err(Errno::EAGAIN) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;
    use tokio::time::{Duration, timeout};

    fn pair() -> (Doorbell, Doorbell) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Doorbell::new(ours.into()).unwrap(), Doorbell::new(theirs.into()).unwrap())
    }

    #[tokio::test]
    async fn it_is_heard_once_however_often_it_was_rung_and_then_again() {
        let (ours, theirs) = pair();
        for times in [1, 64, 65, 1000] {
            for _ in 0..times {
                theirs.ring();
            }
            ours.rung().await.unwrap();
            let again = timeout(Duration::from_millis(1), ours.rung()).await;
            assert!(again.is_err(), "{times}: silent");
        }
    }

    #[tokio::test]
    async fn ringing_never_blocks_and_its_end_is_heard_on_both_sides() {
        let (ours, theirs) = pair();
        for _ in 0..1 << 16 {
            ours.ring();
        }
        theirs.rung().await.unwrap();
        ours.close();
        ours.ring();
        for bell in [ours, theirs] {
            assert_eq!(bell.rung().await.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        }
    }
}
