//! The server's side of TLS: one configuration for new connections, replaced when the files change and can be used.

use super::expiry::expires;
use super::files::{PemFile, TlsError};
use super::names::{common_name, dns_names};
use super::pinned::PinnedKey;
use super::provider::provider;
use parking_lot::RwLock;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{error, info};

/// Interval at which the files are checked for changes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);
/// Maximum time for a handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The files of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerFiles {
    /// The certificate chain, the server's own first.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
    /// The authorities that must have issued a client's certificate; without them any client may connect.
    pub client_ca: Option<PathBuf>,
}

/// The clients of a server, where no file names them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KnownClients {
    /// The authorities that must have issued a client's certificate (PEM).
    pub authorities: String,
    /// The common names of which a client's certificate must have one; if empty, it may have any.
    pub common_names: Vec<String>,
}

/// The current TLS configuration of a server.
#[derive(Debug)]
pub struct ServerTls {
    /// `None` for a key that was made by this process.
    files: Option<ServerFiles>,
    /// The only clients that may connect, if set. No client may connect while the value is `None`.
    clients: Option<watch::Receiver<Option<KnownClients>>>,
    protocol: &'static [u8],
    now: RwLock<Now>,
    /// Digest of the public key in use.
    public_key: watch::Sender<Option<PinnedKey>>,
}

/// When the certificates in use expire, in seconds since the epoch; the earliest date of a chain or bundle, and
/// `None` if no date can be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Expiry {
    /// The server's own chain.
    pub certificate: Option<i64>,
    /// The authorities for client certificates.
    pub client_ca: Option<i64>,
}

#[derive(Debug, Default)]
struct Now {
    config: Option<Arc<ServerConfig>>,
    /// Expiry of the certificates behind `config`.
    expiry: Expiry,
    /// The state of the files at the last check, even if they could not be used.
    seen: Option<Seen>,
}

/// State of the files at a check. Equal states need no second look.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Digests(Vec<Vec<u8>>),
    Unreadable(String),
}

/// The content of the files.
#[derive(Debug)]
struct Contents {
    certificate: PemFile,
    key: PemFile,
    ca: Option<PemFile>,
}

/// The result of a check of the files.
#[derive(Debug)]
pub enum Reload {
    /// The files have not changed.
    Same,
    /// The files were loaded; new connections get the new certificate.
    Loaded,
    /// The files changed but cannot be used. New connections get the old certificate, if there is one.
    Failed(TlsError),
}

/// Reason why a connection was not established.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// No usable certificate has been loaded yet.
    #[error("there is no certificate yet")]
    NoCertificate,
    /// The handshake took longer than 5 s.
    #[error("the handshake took more than {} s", HANDSHAKE_TIMEOUT.as_secs())]
    Timeout,
    /// Client and server could not agree, or the client's certificate is not accepted.
    #[error(transparent)]
    Failed(io::Error),
    /// The client's certificate has none of the names in [`KnownClients`].
    #[error("the client's certificate has none of the names that may connect")]
    Stranger,
}

impl ServerFiles {
    fn read(&self) -> Result<Contents, TlsError> {
        let Self { certificate, key, client_ca } = self;
        Ok(Contents {
            certificate: PemFile::read(certificate)?,
            key: PemFile::read(key)?,
            ca: client_ca.as_deref().map(PemFile::read).transpose()?,
        })
    }
}

impl Contents {
    fn digests(&self) -> Vec<Vec<u8>> {
        let files = [Some(&self.certificate), Some(&self.key), self.ca.as_ref()];
        files.into_iter().flatten().map(|file| file.digest().as_ref().to_vec()).collect()
    }

    fn public_key(&self) -> Result<Option<PinnedKey>, TlsError> {
        Ok(self.certificate.certificates()?.first().and_then(PinnedKey::of))
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
    /// A configuration from these files, which are not read yet, for one application protocol (ALPN).
    #[must_use]
    pub fn new(files: ServerFiles, protocol: &'static [u8]) -> Self {
        let (now, public_key) = (RwLock::default(), watch::Sender::default());
        Self { files: Some(files), clients: None, protocol, now, public_key }
    }

    /// The same for these clients alone, as the receiver has them. Nobody may connect before they are known, and
    /// [`Self::reload`] has been called since.
    #[must_use]
    pub fn for_clients(self, clients: watch::Receiver<Option<KnownClients>>) -> Self {
        // What was loaded before is for everybody.
        Self { clients: Some(clients), now: RwLock::default(), ..self }
    }

    /// A configuration with a new key that never leaves this process, for clients that are told [`Self::public_key`] by
    /// somebody whom they trust: its certificate proves no name.
    ///
    /// # Errors
    /// [`TlsError::Own`] if the key can't be made.
    #[cfg(feature = "own-key")]
    pub fn with_own_key(protocol: &'static [u8]) -> Result<Self, TlsError> {
        let failed = |error: &dyn std::fmt::Display| TlsError::Own(error.to_string());
        let made = rcgen::generate_simple_self_signed(Vec::new()).map_err(|error| failed(&error))?;
        let certificate = made.cert.der().clone();
        let public_key = PinnedKey::of(&certificate);
        let key = rustls::pki_types::PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(&[&TLS13, &TLS12])
            .map_err(|error| failed(&error))?
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key.into())
            .map_err(|error| failed(&error))?;
        let config = Some(Arc::new(for_long_connections(config, protocol)));
        let now = RwLock::new(Now { config, ..Now::default() });
        Ok(Self { files: None, clients: None, protocol, now, public_key: watch::Sender::new(public_key) })
    }

    /// Checks the files, and loads them if they have changed since the last check.
    #[must_use]
    pub fn reload(&self) -> Reload {
        let Some(files) = &self.files else { return Reload::Same };
        let read = self.read(files);
        let seen = match &read {
            Ok(files) => Seen::Digests(files.digests()),
            Err(error) => Seen::Unreadable(error.to_string()),
        };
        if self.now.read().seen.as_ref() == Some(&seen) {
            return Reload::Same;
        }
        let config = read.and_then(|files| Ok((self.config(&files)?, files.public_key()?, files.expiry()?)));
        let mut now = self.now.write();
        now.seen = Some(seen);
        match config {
            Ok((config, public_key, expiry)) => {
                now.config = Some(Arc::new(config));
                now.expiry = expiry;
                drop(now);
                self.public_key.send_if_modified(|known| std::mem::replace(known, public_key) != public_key);
                Reload::Loaded
            }
            Err(error) => Reload::Failed(error),
        }
    }

    fn read(&self, files: &ServerFiles) -> Result<Contents, TlsError> {
        let mut contents = files.read()?;
        if let Some(clients) = &self.clients {
            let clients = clients.borrow();
            let clients = clients.as_ref().ok_or(TlsError::NoClients)?;
            contents.ca = Some(PemFile::of_text("the authority of clients", &clients.authorities));
        }
        Ok(contents)
    }

    /// Whether a client with this certificate may connect, after rustls has checked its authority.
    fn admits(&self, certificate: Option<&CertificateDer<'_>>) -> bool {
        let Some(clients) = &self.clients else { return true };
        let clients = clients.borrow();
        let Some(KnownClients { common_names, .. }) = clients.as_ref() else { return false };
        let name = certificate.and_then(common_name);
        common_names.is_empty() || name.is_some_and(|name| common_names.contains(&name))
    }

    /// Checks the files every 2 s for ever. `tell` is called for every change, which is also logged.
    pub async fn keep(&self, tell: impl Fn(&Reload)) {
        loop {
            sleep(POLL_INTERVAL).await;
            let reload = self.reload();
            let certificate = self.files.as_ref().map(|files| files.certificate.display().to_string());
            match &reload {
                Reload::Same => continue,
                Reload::Loaded => info!(certificate, "New connections get a new certificate"),
                Reload::Failed(error) => {
                    error!(certificate, %error, "Changed certificate is not used; the old one stays");
                }
            }
            tell(&reload);
        }
    }

    /// When the certificates in use expire.
    #[must_use]
    pub fn expiry(&self) -> Expiry {
        self.now.read().expiry
    }

    /// The public key of the certificate in use, by which clients may know this server.
    #[must_use]
    pub fn public_key(&self) -> Option<PinnedKey> {
        *self.public_key.borrow()
    }

    /// [`Self::public_key`], and when it becomes another one.
    #[must_use]
    pub fn watch_public_key(&self) -> watch::Receiver<Option<PinnedKey>> {
        self.public_key.subscribe()
    }

    /// Whether clients must show a certificate.
    #[must_use]
    pub fn asks_clients(&self) -> bool {
        self.clients.is_some() || self.files.as_ref().is_some_and(|files| files.client_ca.is_some())
    }

    /// Does a TLS handshake over `stream`; returns the encrypted stream and the DNS names in the client's
    /// certificate.
    ///
    /// # Errors
    /// [`HandshakeError::NoCertificate`] while no certificate is loaded, [`HandshakeError::Timeout`] after 5 s,
    /// [`HandshakeError::Failed`] if the handshake fails, and [`HandshakeError::Stranger`] for other clients than
    /// [`KnownClients`].
    pub async fn accept<S>(&self, stream: S) -> Result<(TlsStream<S>, Vec<String>), HandshakeError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let config = self.now.read().config.clone();
        let acceptor = TlsAcceptor::from(config.ok_or(HandshakeError::NoCertificate)?);
        let accepted = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await;
        let stream = accepted.map_err(|_| HandshakeError::Timeout)?.map_err(HandshakeError::Failed)?;
        let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        if !self.admits(certificate) {
            return Err(HandshakeError::Stranger);
        }
        let names = certificate.map(dns_names).unwrap_or_default();
        Ok((stream, names))
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
        // Fails if the key does not belong to the certificate: then only one of the two files has been replaced so
        // far.
        let config = builder.with_single_cert(certificate.certificates()?, key.key()?);
        let config = config.map_err(|error| certificate.unusable(error))?;
        Ok(for_long_connections(config, self.protocol))
    }
}

/// Connections are long-lived. Without resumption a returning client shows its certificate again.
fn for_long_connections(mut config: ServerConfig, protocol: &[u8]) -> ServerConfig {
    config.alpn_protocols = vec![protocol.to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    config
}
