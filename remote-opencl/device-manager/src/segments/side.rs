//! The side socket: descriptors can't travel in gRPC, so a session's client connects once more and shows its key.
//!
//! The key binds that socket to the session, and the process that shows it has to be the one that opened the session's
//! connection. Whose the session is has no part in it: that may be said by a token, which no socket knows.

use crate::objects::lock;
use crate::peer::Credentials;
use crate::router::{Inbox, Input};
use fpga_protocol::segments::{KEY_BYTES, TAKEN};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::AsyncReadExt as _;

/// How long a client may take to show its key.
const KEY_TIMEOUT: Duration = Duration::from_secs(2);

/// What opens the side socket for one session, once.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; KEY_BYTES]);

/// The sessions whose clients may still connect. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Sides(Arc<Mutex<HashMap<u64, Expected>>>);

#[derive(Debug)]
struct Expected {
    key: Key,
    process: Credentials,
    inbox: Inbox,
}

/// A client's end for descriptors.
#[derive(Debug)]
pub struct Side(UnixStream);

impl Key {
    /// A new one, of the system's randomness.
    ///
    /// # Errors
    /// The system's.
    pub fn random() -> io::Result<Self> {
        let mut bytes = [0; KEY_BYTES];
        // SAFETY: the pointer and the length are those of the array; requests up to 256 bytes come whole.
        let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
        if usize::try_from(got).is_ok_and(|got| got == KEY_BYTES) {
            Ok(Self(bytes))
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// The one that a Welcome told.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// For the Welcome.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Compares in the same time wherever they differ.
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
    /// From now on this process becomes the side of the session by showing the key.
    pub fn expect(&self, session: u64, key: Key, process: Credentials, inbox: Inbox) {
        lock(&self.0).insert(session, Expected { key, process, inbox });
    }

    /// The session has gone.
    pub fn forget(&self, session: u64) {
        lock(&self.0).remove(&session);
    }

    fn take(&self, shown: &[u8; KEY_BYTES], process: Credentials) -> Option<Inbox> {
        let mut expected = lock(&self.0);
        let matching = expected.iter().filter(|(_, it)| it.key.is(shown) && it.process == process);
        let session = *matching.map(|(session, _)| session).next()?;
        // A key opens once.
        expected.remove(&session).map(|it| it.inbox)
    }

    /// Hears the key of who has connected, and gives the socket to its session; closes it where there is none.
    ///
    /// # Errors
    /// The socket's.
    pub async fn greet(&self, stream: UnixStream) -> io::Result<()> {
        let process = Credentials::of(&stream)?;
        stream.set_nonblocking(true)?;
        let mut stream = tokio::net::UnixStream::from_std(stream)?;
        let mut shown = [0; KEY_BYTES];
        tokio::time::timeout(KEY_TIMEOUT, stream.read_exact(&mut shown)).await??;
        match self.take(&shown, process) {
            Some(inbox) => {
                // A session that has gone drops it, which closes it.
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
    /// The socket of a client whose key was taken elsewhere.
    #[must_use]
    pub fn of(socket: OwnedFd) -> Self {
        Self(socket.into())
    }

    /// Tells the client that its key was taken.
    ///
    /// # Errors
    /// The socket's.
    pub fn welcome(&self) -> io::Result<()> {
        self.send(&[TAKEN], &[])
    }

    /// Passes a segment's descriptor. Never waits: who doesn't read gets none.
    ///
    /// # Errors
    /// The socket's.
    pub fn pass(&self, segment: u64, fd: &OwnedFd) -> io::Result<()> {
        self.send(&segment.to_le_bytes(), &[fd])
    }

    /// Passes what a command ring is made of, as the answer to a call.
    ///
    /// # Errors
    /// The socket's.
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
