//! TLS 1.2 and 1.3 by rustls over ring, the one crypto provider of the project.
//!
//! Certificates and keys are PEM files. A server reads them anew when they change and keeps the old ones when the new
//! ones are no good; a client reads them for each connection. A peer's names are those of its certificate's SAN; the
//! common name means nothing.

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

/// The protocol of our HTTP ports, as ALPN names it.
pub const HTTP_1: &[u8] = b"http/1.1";
/// The protocol of our gRPC ports, as ALPN names it.
pub const HTTP_2: &[u8] = b"h2";

/// One for all: a default of the process could be another library's.
fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: LazyLock<Arc<CryptoProvider>> =
        LazyLock::new(|| Arc::new(rustls::crypto::ring::default_provider()));
    Arc::clone(&PROVIDER)
}

/// The DNS names that `certificate` is for; wildcards as they are written, so that they equal no host's name.
#[must_use]
pub fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    webpki::EndEntityCert::try_from(certificate)
        .map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect())
        .unwrap_or_default()
}
