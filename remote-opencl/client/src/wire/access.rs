//! How a session shows to its manager who it is, and how it knows the manager.

use crate::wire::credentials;
use crate::wire::keepalive::Keepalive;
use bytes::Bytes;
use fpga_net::tls::{ClientFiles, PinnedKey};
use std::io;
use std::time::Duration;

/// What a session shows and expects.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Access {
    /// The token and the TLS files that the environment names.
    Environment,
    /// A lease of a lent slot, whose id is a secret of the manager and its holder.
    Lease {
        /// The lease's id.
        id: [u8; 16],
        /// The public key that the manager must have; `None` without TLS.
        key: Option<PinnedKey>,
    },
}

/// How a connection over TCP is secured.
#[derive(Debug)]
pub(crate) enum Tls {
    /// By the authorities in these files.
    Files(ClientFiles),
    /// By the manager's public key.
    Pinned(PinnedKey),
    /// Not at all.
    None,
}

impl Access {
    /// The token; empty if there is none.
    ///
    /// # Errors
    /// The token's file can't be read.
    pub(crate) fn token(self) -> io::Result<String> {
        match self {
            Self::Environment => credentials::token(),
            Self::Lease { .. } => Ok(String::new()),
        }
    }

    /// The id of the lease; empty if there is none.
    pub(crate) fn lease(self) -> Bytes {
        match self {
            Self::Environment => Bytes::new(),
            Self::Lease { id, .. } => Bytes::copy_from_slice(&id),
        }
    }

    /// How a connection over TCP is secured.
    pub(crate) fn tls(self) -> Tls {
        match self {
            Self::Environment => credentials::tls().map_or(Tls::None, Tls::Files),
            Self::Lease { key, .. } => key.map_or(Tls::None, Tls::Pinned),
        }
    }

    /// The keepalive of a unix socket. The kernel reports the end of the peer, so that pings only find a peer that was
    /// stopped: the holder of a lease wants to know, a program does not.
    pub(crate) fn keepalive_of_unix(self, keepalive: Keepalive) -> Keepalive {
        match self {
            Self::Environment => Keepalive::within(Duration::ZERO),
            Self::Lease { .. } => keepalive,
        }
    }
}
