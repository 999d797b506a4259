//! TLS 1.2 and 1.3 by rustls over ring, the only crypto provider of the project.
//!
//! Certificates and keys are PEM files. A server reads them again when they change, and keeps the old ones if the new
//! ones cannot be used. A client reads them for each connection. A peer's names are those in its certificate's SAN;
//! the common name is ignored, unless [`KnownClients`] names some.

mod client;
mod der;
mod expiry;
mod files;
mod names;
mod pinned;
mod provider;
mod server;

pub use client::{ClientFiles, ConnectError};
pub use expiry::{expires, pem_expires};
pub use files::TlsError;
pub use names::{common_name, dns_names};
pub use pinned::PinnedKey;
pub use server::{Expiry, HandshakeError, KnownClients, Reload, ServerFiles, ServerTls};

/// The ALPN name of HTTP/1.1.
pub const HTTP_1: &[u8] = b"http/1.1";
/// The ALPN name of HTTP/2, for gRPC ports.
pub const HTTP_2: &[u8] = b"h2";
