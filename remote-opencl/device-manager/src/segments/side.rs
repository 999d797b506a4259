//! The side socket. Descriptors can't travel in gRPC, so a session's client makes one more connection and sends its
//! key.
//!
//! The key binds that connection to the session, and only the process that opened the session's connection may use
//! the key. The tenant is not compared: it may come from a token, which the side socket does not know.

use crate::peer::Credentials;
use crate::router::{Inbox, Input};
use fpga_protocol::segments::{KEY_BYTES, TAKEN};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

/// Time in which a client must send its key.
const KEY_TIMEOUT: Duration = Duration::from_secs(2);

/// A key that opens the side socket for one session, once.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

/// The sessions whose clients may still connect to the side socket. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Sides(Arc<Mutex<HashMap<u64, Expected>>>);

#[derive(Debug)]
struct Expected {
    key: Key,
    process: Credentials,
    inbox: Inbox,
}

/// The connection over which a client gets descriptors.
#[derive(Debug)]
pub struct Side(UnixStream);

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
    fn is(&self, other: &[u8; KEY_BYTES]) -> bool {
        self.0.iter().zip(other).fold(0, |differs, (a, b)| differs | (a ^ b)) == 0
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key")
    }
}

impl Sides {
    /// Lets `process` connect to the side socket for `session` with `key`.
    pub fn expect(&self, session: u64, key: Key, process: Credentials, inbox: Inbox) {
        self.0.lock().insert(session, Expected { key, process, inbox });
    }

    /// Removes a session that has ended.
    pub fn forget(&self, session: u64) {
        self.0.lock().remove(&session);
    }

    fn take(&self, shown: &[u8; KEY_BYTES], process: Credentials) -> Option<Inbox> {
        let mut expected = self.0.lock();
        let matching = expected.iter().filter(|(_, it)| it.key.is(shown) && it.process == process);
        let session = *matching.map(|(session, _)| session).next()?;
        // The key is valid once.
        expected.remove(&session).map(|it| it.inbox)
    }

    /// Reads the key from a new connection, and gives the connection to its session. Closes the connection if the
    /// key is wrong.
    ///
    /// # Errors
    /// The socket's error, or a timeout.
    pub async fn greet(&self, stream: UnixStream) -> io::Result<()> {
        let process = Credentials::of(&stream)?;
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        let mut shown = [0; KEY_BYTES];
        tokio::time::timeout(KEY_TIMEOUT, stream.read_exact(&mut shown)).await??;
        match self.take(&shown, process) {
            Some(inbox) => {
                // If the session has ended, the connection is dropped and so closed.
                let _ = inbox.0.send(Input::Side(Side(stream.into_std()?)));
            }
            None => tracing::info!(?process, "A wrong key on the side socket"),
        }
        Ok(())
    }
}

impl AsFd for Side {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Side {
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
