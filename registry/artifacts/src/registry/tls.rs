//! Whose certificates count.

use super::error::RegistryError;
use super::hosts::PlainHttp;
use hyper_rustls::ConfigBuilderExt as _;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use std::fmt::Display;
use std::path::Path;
use std::sync::Arc;

/// TLS with the authorities in the file `ca`, or with the system's.
pub fn config(ca: Option<&Path>, plain_http: PlainHttp) -> Result<ClientConfig, RegistryError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| unusable(&error))?;
    let builder = match ca {
        Some(path) => builder.with_root_certificates(authorities(path)?),
        None => match builder.clone().with_native_roots() {
            Ok(builder) => builder,
            // Without TLS a machine needs no authorities.
            Err(_) if plain_http == PlainHttp::Yes => builder.with_root_certificates(RootCertStore::empty()),
            Err(error) => return Err(unusable(&error)),
        },
    };
    Ok(builder.with_no_client_auth())
}

fn authorities(path: &Path) -> Result<RootCertStore, RegistryError> {
    let shown = path.display();
    let of_file = |error: &dyn Display| unusable(&format!("{shown}: {error}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| of_file(&error))? {
        let certificate = certificate.map_err(|error| of_file(&error))?;
        roots.add(certificate).map_err(|error| of_file(&error))?;
    }
    if roots.is_empty() {
        return Err(unusable(&format!("{shown} has no certificate in PEM form")));
    }
    Ok(roots)
}

fn unusable(error: &dyn Display) -> RegistryError {
    RegistryError::Authorities(error.to_string())
}
