//! The server's side: one configuration for new connections, replaced when the files change and the new ones are good.

use super::expiry::expires;
use super::files::{PemFile, TlsError};
use super::{dns_names, provider};
use rustls::ServerConfig;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{error, info};

/// How often the files are looked at.
const LOOK: Duration = Duration::from_secs(2);
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Where a server's certificate lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// Its chain, its own certificate first.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// Authorities of which a client must have a certificate; without them anybody may connect.
    pub client_ca: Option<PathBuf>,
}

/// TLS as a server speaks it now.
#[derive(Debug)]
pub struct ServerTls {
    files: ServerFiles,
    protocol: &'static [u8],
    now: RwLock<Now>,
}

/// Until when certificates are valid, in seconds since the epoch, as far as they say; of a chain or bundle what ends first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expiry {
    /// Our own, with its chain.
    pub certificate: Option<i64>,
    /// Those of the authorities of which clients must have one.
    pub client_ca: Option<i64>,
}

#[derive(Debug, Default)]
struct Now {
    config: Option<Arc<ServerConfig>>,
    /// Of the files behind `config`.
    expiry: Expiry,
    /// The last look at the files, whatever came of it.
    seen: Option<Seen>,
}

/// Files that say the same need no second look.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Digests(Vec<Vec<u8>>),
    Unreadable(String),
}

/// What the files have.
#[derive(Debug)]
struct Contents {
    certificate: PemFile,
    key: PemFile,
    ca: Option<PemFile>,
}

/// What a look at the files brought.
#[derive(Debug)]
pub enum Reload {
    /// They are what they were.
    Same,
    /// New connections get the new certificate.
    Loaded,
    /// They changed, and are no good; new connections get the old certificate, if there ever was one.
    Failed(TlsError),
}

/// Why a connection was not established.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// There is no good certificate yet.
    #[error("there is no certificate yet")]
    NoCertificate,
    /// It took too long.
    #[error("the handshake took more than {} s", HANDSHAKE.as_secs())]
    Timeout,
    /// Both sides could not agree, or the client's certificate is not accepted.
    #[error(transparent)]
    Failed(io::Error),
}

impl Contents {
    fn digests(&self) -> Vec<Vec<u8>> {
        let files = [Some(&self.certificate), Some(&self.key), self.ca.as_ref()];
        files.into_iter().flatten().map(|file| file.digest().as_ref().to_vec()).collect()
    }

    fn expiry(&self) -> Result<Expiry, TlsError> {
        let first = |file: &PemFile| Ok(file.certificates()?.iter().filter_map(expires).min());
        Ok(Expiry {
            certificate: first(&self.certificate)?,
            client_ca: self.ca.as_ref().map(first).transpose()?.flatten(),
        })
    }
}

impl ServerTls {
    /// TLS with these files, which are not read yet, for one application protocol.
    #[must_use]
    pub fn new(files: ServerFiles, protocol: &'static [u8]) -> Self {
        Self { files, protocol, now: RwLock::default() }
    }

    /// Looks at the files.
    #[must_use]
    pub fn reload(&self) -> Reload {
        let read = self.read();
        let seen = match &read {
            Ok(files) => Seen::Digests(files.digests()),
            Err(error) => Seen::Unreadable(error.to_string()),
        };
        if self.now.read().unwrap_or_else(PoisonError::into_inner).seen.as_ref() == Some(&seen) {
            return Reload::Same;
        }
        let config = read.and_then(|files| Ok((self.config(&files)?, files.expiry()?)));
        let mut now = self.now.write().unwrap_or_else(PoisonError::into_inner);
        now.seen = Some(seen);
        match config {
            Ok((config, expiry)) => {
                now.config = Some(Arc::new(config));
                now.expiry = expiry;
                Reload::Loaded
            }
            Err(error) => Reload::Failed(error),
        }
    }

    /// Looks at the files again and again; `tell` hears of every change, which is logged too.
    pub async fn keep(&self, tell: impl Fn(&Reload)) {
        loop {
            sleep(LOOK).await;
            let reload = self.reload();
            let certificate = self.files.certificate.display();
            match &reload {
                Reload::Same => continue,
                Reload::Loaded => info!(%certificate, "New connections get a new certificate"),
                Reload::Failed(error) => {
                    error!(%certificate, %error, "Changed certificate is not used; the old one stays");
                }
            }
            tell(&reload);
        }
    }

    /// Until when the certificates are valid that are in use.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        self.now.read().unwrap_or_else(PoisonError::into_inner).expiry
    }

    /// Whether clients must show a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.files.client_ca.is_some()
    }

    /// Makes a connection of `stream`, and says which names the client's certificate has.
    ///
    /// # Errors
    /// [`HandshakeError`].
    pub async fn accept<S>(&self, stream: S) -> Result<(TlsStream<S>, Vec<String>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.now.read().unwrap_or_else(PoisonError::into_inner).config.clone();
        let acceptor = TlsAcceptor::from(config.ok_or(HandshakeError::NoCertificate)?);
        let accepted = timeout(HANDSHAKE, acceptor.accept(stream)).await;
        let stream = accepted.map_err(|_| HandshakeError::Timeout)?.map_err(HandshakeError::Failed)?;
        let certificates = stream.get_ref().1.peer_certificates();
        let names = certificates.and_then(|chain| chain.first()).map(dns_names).unwrap_or_default();
        Ok((stream, names))
    }

    fn read(&self) -> Result<Contents, TlsError> {
        let ServerFiles { certificate, key, client_ca } = &self.files;
        Ok(Contents {
            certificate: PemFile::read(certificate)?,
            key: PemFile::read(key)?,
            ca: client_ca.as_deref().map(PemFile::read).transpose()?,
        })
    }

    fn config(&self, files: &Contents) -> Result<ServerConfig, TlsError> {
        let Contents { certificate, key, ca } = files;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| certificate.unusable(error))?;
        let builder = match ca {
            None => builder.with_no_client_auth(),
            Some(ca) => {
                let roots = Arc::new(ca.authorities()?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| ca.unusable(error))?)
            }
        };
        // Refuses a key that is not the certificate's: half of a change is no change.
        let config = builder.with_single_cert(certificate.certificates()?, key.key()?);
        let mut config = config.map_err(|error| certificate.unusable(error))?;
        config.alpn_protocols = vec![self.protocol.to_vec()];
        // Connections last; who comes again shows what it has again.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}
