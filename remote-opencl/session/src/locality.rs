//! Where a client is.

use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::PeerCredentials;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixStream;

/// Where a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Locality {
    /// On this node, in this process; memory can be shared with it.
    SharesMemory(Credentials),
    /// On another node, or shared memory is switched off.
    Remote,
}

/// A process of this node, as the kernel recorded it when it connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    uid: u32,
    /// 0 if the process is in a PID namespace that this process does not see.
    pid: i32,
}

impl Credentials {
    /// The credentials of the peer.
    ///
    /// # Errors
    /// The system's error.
    pub fn of(stream: &UnixStream) -> io::Result<Self> {
        let credentials = getsockopt(stream, PeerCredentials)?;
        Ok(Self { uid: credentials.uid(), pid: credentials.pid() })
    }

    /// The process id, if this process sees it.
    #[must_use]
    pub fn process(self) -> Option<u32> {
        u32::try_from(self.pid).ok().filter(|pid| *pid != 0)
    }

    #[cfg(test)]
    pub(crate) fn new(uid: u32, pid: i32) -> Self {
        Self { uid, pid }
    }
}
