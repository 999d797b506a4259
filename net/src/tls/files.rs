//! PEM files: bounded reading, parsing, and the errors of both.

use ring::digest::{Digest, SHA256, digest};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Maximum size of a file, in bytes. A chain of certificates has some thousands, a bundle of authorities some hundred
/// thousand.
const MAX_BYTES: u64 = 1 << 20;

/// Error of a certificate or key file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The file cannot be read.
    #[error("{path} can't be read: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// The file contains no element of the expected kind.
    #[error("{path} has no {what} in PEM form (-----BEGIN …)")]
    Nothing {
        /// The file.
        path: PathBuf,
        /// The expected kind of element.
        what: &'static str,
    },
    /// The file's content cannot be used.
    #[error("{path} can't be used: {reason}")]
    Unusable {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// It is not known yet who may connect.
    #[error("the authority of clients is not known yet")]
    NoClients,
    /// A key of the process's own can't be made.
    #[error("no key can be made: {0}")]
    Own(String),
}

/// The content of a PEM file.
#[derive(Debug)]
pub struct PemFile {
    path: PathBuf,
    bytes: Vec<u8>,
}

impl PemFile {
    /// Reads a file of at most [`MAX_BYTES`].
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

    /// A text that comes from elsewhere; `name` stands for its path in errors.
    pub fn of_text(name: &str, text: &str) -> Self {
        Self { path: name.into(), bytes: text.as_bytes().to_vec() }
    }

    /// Digest of the content, by which a changed file is recognised.
    pub fn digest(&self) -> Digest {
        digest(&SHA256, &self.bytes)
    }

    /// The chain of certificates, the holder's first.
    pub fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.bytes).collect();
        let found = found.map_err(|error| self.unusable(error))?;
        if found.is_empty() { Err(self.nothing("certificate")) } else { Ok(found) }
    }

    /// The private key.
    pub fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        PrivateKeyDer::from_pem_slice(&self.bytes).map_err(|_| self.nothing("private key"))
    }

    /// The authorities in the file, to be trusted.
    pub fn authorities(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for certificate in self.certificates()? {
            roots.add(certificate).map_err(|error| self.unusable(error))?;
        }
        Ok(roots)
    }

    /// The error that this file cannot be used, with the reason.
    pub fn unusable(&self, reason: impl std::fmt::Display) -> TlsError {
        TlsError::Unusable { path: self.path.clone(), reason: reason.to_string() }
    }

    fn nothing(&self, what: &'static str) -> TlsError {
        TlsError::Nothing { path: self.path.clone(), what }
    }
}
