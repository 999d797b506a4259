//! The client's side: who is trusted, and what is shown. The files are read for each connection, so that they may change.

use super::files::{PemFile, TlsError};
use super::provider;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Where a client's files lie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientFiles {
    /// Authorities of which the server must have a certificate.
    pub ca: PathBuf,
    /// Certificate and private key to show.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The files are no good.
    #[error(transparent)]
    Files(#[from] TlsError),
    /// The server's name is none.
    #[error("{0:?} is no name that a certificate can have")]
    Name(String),
    /// The server is not who it should be, refuses us, or broke off.
    #[error(transparent)]
    Failed(#[from] io::Error),
}

impl ClientFiles {
    /// Makes a connection of `stream` to a server that must prove to be `name`, a DNS name or an IP address.
    ///
    /// # Errors
    /// [`ConnectError`].
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
