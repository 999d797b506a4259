//! The names in a certificate.

use rustls::pki_types::CertificateDer;

/// The DNS names in `certificate`. Wildcards are returned as they are written, so they equal no host's name.
#[must_use]
pub fn dns_names(certificate: &CertificateDer<'_>) -> Vec<String> {
    webpki::EndEntityCert::try_from(certificate)
        .map(|certificate| certificate.valid_dns_names().map(str::to_owned).collect())
        .unwrap_or_default()
}
