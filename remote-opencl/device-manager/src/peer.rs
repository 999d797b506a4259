//! The peer of a connection, and the tenant that it proves to be.

use crate::keepalive::Keepalive;
use fpga_board::dispatch::Tenant;
use fpga_session::locality::Credentials;
use nix::sys::socket::sockopt::{PeerCredentials, SndBuf};
use nix::sys::socket::{getsockopt, setsockopt};
use std::io;
use std::net::{IpAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

/// Send buffer of a unix socket, as far as the system allows. A larger buffer needs fewer wake-ups for a large
/// result.
const SEND_BUFFER_BYTES: usize = 1 << 20;

/// An accepted connection.
#[derive(Debug)]
pub enum Accepted {
    /// A connection from the same node.
    Unix(UnixStream),
    /// A connection over the network.
    Tcp(TcpStream),
    /// A connection over the network, for sessions with a lease.
    Pool(TcpStream),
}

/// The identity of the peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A process with this user id, according to the kernel.
    User(u32),
    /// The holder of a certificate that the configured authority has signed. The name is the first one in its SAN.
    Certificate(Arc<str>),
    /// A client at this address, without proof (`--insecure-tcp`).
    Address(IpAddr),
}

impl Accepted {
    /// The process that has connected; `None` over TCP.
    ///
    /// # Errors
    /// The system's error.
    pub fn credentials(&self) -> io::Result<Option<Credentials>> {
        match self {
            Self::Unix(stream) => Credentials::of(stream).map(Some),
            Self::Tcp(_) | Self::Pool(_) => Ok(None),
        }
    }

    /// Determines the peer, and sets the socket's options: a large send buffer for unix, no delay and keepalive for
    /// TCP.
    ///
    /// # Errors
    /// The system's error.
    pub fn peer(&self, keepalive: Keepalive) -> io::Result<Peer> {
        match self {
            Self::Unix(stream) => {
                setsockopt(stream, SndBuf, &SEND_BUFFER_BYTES)?;
                Ok(Peer::User(getsockopt(stream, PeerCredentials)?.uid()))
            }
            Self::Tcp(stream) | Self::Pool(stream) => {
                stream.set_nodelay(true)?;
                keepalive.ask_kernel(stream)?;
                Ok(Peer::Address(stream.peer_addr()?.ip().to_canonical()))
            }
        }
    }
}

impl From<Accepted> for OwnedFd {
    fn from(accepted: Accepted) -> Self {
        match accepted {
            Accepted::Unix(stream) => stream.into(),
            Accepted::Tcp(stream) | Accepted::Pool(stream) => stream.into(),
        }
    }
}

impl Peer {
    /// The tenant of this peer.
    #[must_use]
    pub fn tenant(&self) -> Tenant {
        match self {
            Self::User(uid) => Tenant::new(&format!("uid:{uid}")),
            Self::Certificate(name) => Tenant::new(&format!("cert:{name}")),
            Self::Address(address) => Tenant::new(&format!("address:{address}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_names_the_user_at_the_other_end() {
        let (one, _other) = UnixStream::pair().unwrap();
        let uid = nix::unistd::getuid().as_raw();
        assert_eq!(
            Accepted::Unix(one).peer(Keepalive::within(std::time::Duration::ZERO)).unwrap().tenant(),
            Tenant::new(&format!("uid:{uid}"))
        );
    }
}
