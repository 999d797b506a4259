//! The connection over which a client gets descriptors, and the key that opens it.

use fpga_protocol::segments::{KEY_BYTES, TAKEN};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// A key that opens the side socket for one session, once.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

/// The connection over which a client gets descriptors.
#[derive(Debug)]
pub struct FdChannel(UnixStream);

impl Key {
    /// Makes a random key.
    ///
    /// # Errors
    /// The system's error.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        // SAFETY: the pointer and the length are those of the array. The kernel serves requests of up to 256 bytes
        // whole.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if usize::try_from(got).is_ok_and(|got| got == KEY_BYTES) {
            Ok(Self(bytes))
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The key with these bytes; `None` if their number is wrong.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The key's bytes, for the Welcome.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares in constant time.
    pub(crate) fn is(&self, other: &[u8; KEY_BYTES]) -> bool {
        self.0.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl AsFd for FdChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl FdChannel {
    /// A connection whose key another process has read.
    #[must_use]
    pub fn of(socket: OwnedFd) -> Self {
        Self(socket.into())
    }

    /// Tells the client that its key was accepted.
    ///
    /// # Errors
    /// The socket's error.
    pub fn welcome(&self) -> io::Result<()> {
        self.send(&[TAKEN], &[])
    }

    /// Sends the descriptor of a segment. Never waits: a client that does not read gets no descriptor.
    ///
    /// # Errors
    /// The socket's error.
    pub fn pass(&self, segment: u64, fd: &OwnedFd) -> io::Result<()> {
        self.send(&segment.to_le_bytes(), &[fd])
    }

    /// Sends the descriptors of a command ring, as the answer to a call.
    ///
    /// # Errors
    /// The socket's error.
    pub fn pass_ring(&self, call: u64, memory: &OwnedFd, bell: &OwnedFd) -> io::Result<()> {
        self.send(&call.to_le_bytes(), &[memory, bell])
    }

    fn send(&self, bytes: &[u8], fds: &[&OwnedFd]) -> io::Result<()> {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
        let rights = [ControlMessage::ScmRights(&fds)];
        let control: &[ControlMessage<'_>] = if fds.is_empty() { &[] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let sent = sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(bytes)], control, flags, None)?;
        if sent == bytes.len() { Ok(()) } else { Err(io::ErrorKind::WriteZero.into()) }
    }
}
