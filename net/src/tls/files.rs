//! PEM files: read with a bound, taken apart, and what can be wrong with them.

use ring::digest::{Digest, SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Longest file, in bytes; a chain of certificates has some thousands, a bundle of authorities some hundred thousand.
const MAX_BYTES: u64 = 1 << 20;

/// What is wrong with certificates or keys.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file can't be read.
    #[error("{path} can't be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: io::Error,
    },
    /// A file has nothing of what it should have.
    #[error("{path} has no {what} in PEM form (-----BEGIN …)")]
    Nothing {
        /// The file.
        path: PathBuf,
        /// What it should have.
        what: &'static str,
    },
    /// What it has can't be used.
    #[error("{path} can't be used: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// A file and what it had.
#[derive(Debug)]
pub struct PemFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl PemFile {
    /// Reads the file.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        let io = |source| TlsError::Io { path: path.to_owned(), source };
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).map_err(io)?;
        file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
        if bytes.len() as u64 > MAX_BYTES {
            return Err(io(io::Error::new(
                io::ErrorKind::FileTooLarge,
                format!("more than {MAX_BYTES} bytes"),
            )));
        }
        Ok(Self { path: path.to_owned(), bytes })
    }

    /// What tells a changed file from the same.
    pub fn digest(&self) -> Digest {
        digest(&SHA256, &self.bytes)
    }

    /// A chain of certificates, the holder's first.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let found = found.map_err(|error| self.unusable(error))?;
        if found.is_empty() { Err(self.nothing("certificate")) } else { Ok(found) }
    }

    /// A private key.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|_| self.nothing("private key"))
    }

    /// Authorities that are trusted.
    pub fn authorities(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.unusable(error))?;
        }
        Ok(roots)
    }

    /// That it can't be used.
    pub fn unusable(&self, reason: impl std::fmt::Display) -> TlsError {
        TlsError::Unusable { path: self.path.clone(), reason: reason.to_string() }
    }

    fn nothing(&self, what: &'static str) -> TlsError {
        TlsError::Nothing { path: self.path.clone(), what }
    }
}
