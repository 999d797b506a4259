//! The client's side of TLS. The files are read for each connection, so that they may change.

use super::files::{PemFile, TlsError};
use super::provider::provider;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// The files of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// The authorities that the client trusts: one of them must have issued the server's certificate.
    pub ca: PathBuf,
    /// The client's certificate and private key, if the client shows any.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Reason why no connection was established.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// A file cannot be read or used.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The name is neither a DNS name nor an IP address.
    #[error("{0:?} is no name that a certificate can have")]
    Name(String),
    /// The server's certificate does not prove the name, the server refused the client, or the connection broke.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl ClientFiles {
    /// Does a TLS handshake over `stream` with a server that must prove to be `name`, a DNS name or an IP address.
    ///
    /// # Errors
    /// [`ConnectError::Files`] for the client's own files, [`ConnectError::Name`] for an impossible name, and
    /// [`ConnectError::Failed`] if the handshake fails.
    pub async fn connect<S>(
        &self,
        stream: S,
        name: &str,
        protocol: &'static [u8],
    ) -> Result<TlsStream<S>, ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.config(protocol)?;
        let bare = name.trim_start_matches('[').trim_end_matches(']').to_owned();
        let name = ServerName::try_from(bare).map_err(|_| ConnectError::Name(name.to_owned()))?;
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }

    fn config(&self, protocol: &'static [u8]) -> Result<ClientConfig, TlsError> {
        let ca = PemFile::read(&self.ca)?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| ca.unusable(error))?
            .with_root_certificates(ca.authorities()?);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some((certificate, key)) => {
                let (certificate, key) = (PemFile::read(certificate)?, PemFile::read(key)?);
                let config = builder.with_client_auth_cert(certificate.certificates()?, key.key()?);
                config.map_err(|error| certificate.unusable(error))?
            }
        };
        config.alpn_protocols = vec![protocol.to_vec()];
        Ok(config)
    }
}
