//! TLS 1.2 and 1.3 by rustls over ring, the only crypto provider of the project.
//!
//! Certificates and keys are PEM files. A server reads them again when they change, and keeps the old ones if the new
//! ones cannot be used. A client reads them for each connection. A peer's names are those in its certificate's SAN;
//! the common name is ignored.

mod client;
mod expiry;
mod files;
mod server;

pub use client::{ClientFiles, ConnectError};
pub use expiry::expires;
pub use files::TlsError;
pub use server::{Expiry, HandshakeError, Reload, ServerFiles, ServerTls};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use std::sync::{Arc, LazyLock};

/// The ALPN name of HTTP/1.1.
pub const HTTP_1: &[u8] = b"http/1.1";
/// The ALPN name of HTTP/2, for gRPC ports.
pub const HTTP_2: &[u8] = b"h2";

/// The crypto provider, always passed explicitly: the default of the process could be another library's.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    Arc::clone(&PROVIDER)
}

/// The DNS names in `certificate`. Wildcards are returned as they are written, so they equal no host's name.
#[must_use]
pub fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    webpki::EndEntityCert::try_from(certificate)
        .map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect())
        .unwrap_or_default()
}
