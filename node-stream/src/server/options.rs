//! The settings of the streams. A port without authentication or without TLS needs an explicit flag.

use super::authenticator::{Authenticator, Reviewer};
use super::listener::serve_with;
use super::receiver::Receiver;
use super::streams::Streams;
use fpga_net::tls::{HTTP_2, Reload, ServerFiles, ServerTls};
use fpga_net::token_file::TokenFile;
use kube::Client;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;
use tracing::{info, warn};

/// Address, certificates and authentication of the streams' port.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Streams of collectors")]
pub struct StreamArgs {
    /// Address for collectors' streams; port 0 takes a free one. Without it, states come by annotation only.
    #[arg(long, env = "FPGA_STREAM_LISTEN", value_name = "ADDRESS")]
    pub stream_listen: Option<SocketAddr>,
    /// Certificate (PEM, with its chain) of the streams' port, read again when it changes. The file may appear later.
    #[arg(long, env = "FPGA_STREAM_TLS_CERT", value_name = "PATH", requires = "stream_tls_key")]
    pub stream_tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "FPGA_STREAM_TLS_KEY", value_name = "PATH", requires = "stream_tls_cert")]
    pub stream_tls_key: Option<PathBuf>,
    /// Authorities (PEM) that must have signed a collector's client certificate; one of its DNS names must be the
    /// node's.
    #[arg(long, env = "FPGA_STREAM_TLS_CLIENT_CA", value_name = "PATH", requires = "stream_tls_cert")]
    pub stream_tls_client_ca: Option<PathBuf>,
    /// Serve streams without TLS, in a trusted network or for a trial on one machine.
    #[arg(long, env = "FPGA_STREAM_WITHOUT_TLS", conflicts_with = "stream_tls_cert")]
    pub stream_without_tls: bool,
    /// Service account of the collectors, as NAMESPACE/NAME. Each collector sends its pod's token, and the API server
    /// tells the pod's node. Needs the right to create tokenreviews, and Kubernetes 1.32.
    #[arg(
        long,
        env = "FPGA_STREAM_SERVICE_ACCOUNT",
        value_name = "ACCOUNT",
        conflicts_with = "stream_token_file"
    )]
    pub stream_service_account: Option<String>,
    /// Audience that the tokens of --stream-service-account must have.
    #[arg(long, env = "FPGA_STREAM_AUDIENCE", default_value = "fpga-scheduler-extender")]
    pub stream_audience: String,
    /// File with a token that all collectors share, read again for every stream. Whoever has the token can send
    /// states of any node.
    #[arg(long, env = "FPGA_STREAM_TOKEN_FILE", value_name = "PATH")]
    pub stream_token_file: Option<PathBuf>,
    /// Accept streams without authentication, for a trial on one machine.
    #[arg(
        long,
        env = "FPGA_STREAM_WITHOUT_TOKEN",
        conflicts_with_all = ["stream_token_file", "stream_service_account"]
    )]
    pub stream_without_token: bool,
}

/// The open port of the streams.
#[derive(Debug)]
pub struct StreamPort {
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    authenticator: Authenticator,
}

/// The streams' port can't be opened.
#[derive(Debug, thiserror::Error)]
pub enum StreamPortError {
    /// Neither a certificate nor its absence is set.
    #[error(
        "--stream-listen takes what decisions rest on: write --stream-tls-cert PATH --stream-tls-key PATH, or --stream-without-tls where nobody can listen in"
    )]
    NoTls,
    /// Neither an authentication nor its absence is set.
    #[error(
        "--stream-listen lets collectors say what their nodes do: write --stream-service-account NAMESPACE/NAME, --stream-tls-client-ca PATH or --stream-token-file PATH, or --stream-without-token to believe anyone who reaches the port"
    )]
    NoAuthentication,
    /// The text is no service account.
    #[error(
        "--stream-service-account {0:?} can't be; write NAMESPACE/NAME, for example kube-fpga/fpga-collector"
    )]
    ServiceAccount(String),
    /// The address can't be bound.
    #[error("can't listen on {address}; choose another address with --stream-listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

impl StreamArgs {
    /// Opens the port, with `--stream-listen`.
    ///
    /// # Errors
    /// The port can't be opened, or TLS or authentication is not configured and no flag waives it.
    pub async fn open(&self, client: &Client) -> Result<Option<StreamPort>, StreamPortError> {
        let Some(address) = self.stream_listen else { return Ok(None) };
        let (tls, authenticator) = (self.tls()?, self.authenticator(client)?);
        let bind = |source| StreamPortError::Bind { address, source };
        let listener = fpga_net::listen::bind(address).map_err(bind)?;
        let port = StreamPort { listener, tls, authenticator };
        info!(
            stream_listen = %port.address().map_err(bind)?, proof = ?port.authenticator, tls = port.tls.is_some(),
            client_certificates = self.stream_tls_client_ca.is_some(), "Collectors may stream"
        );
        Ok(Some(port))
    }

    fn tls(&self) -> Result<Option<Arc<ServerTls>>, StreamPortError> {
        let (Some(certificate), Some(key)) = (&self.stream_tls_cert, &self.stream_tls_key) else {
            if self.stream_without_tls {
                return Ok(None);
            }
            return Err(StreamPortError::NoTls);
        };
        let files = ServerFiles {
            certificate: certificate.clone(),
            key: key.clone(),
            client_ca: self.stream_tls_client_ca.clone(),
        };
        let tls = ServerTls::new(files, HTTP_2);
        if let Reload::Failed(error) = tls.reload() {
            // The Secret with the certificate may appear later; until then states come by annotation.
            warn!(%error, "Streams are refused until there is a certificate");
        }
        Ok(Some(Arc::new(tls)))
    }

    fn authenticator(&self, client: &Client) -> Result<Authenticator, StreamPortError> {
        if let Some(account) = &self.stream_service_account {
            let invalid = || StreamPortError::ServiceAccount(account.clone());
            let (namespace, name) = account.split_once('/').ok_or_else(invalid)?;
            let reviewer = Reviewer::new(client.clone(), namespace, name, &self.stream_audience);
            return Ok(Authenticator::ServiceAccount(reviewer));
        }
        if let Some(path) = &self.stream_token_file {
            let file = TokenFile::new(path);
            if let Err(error) = file.read() {
                warn!(%error, "Streams are refused until there is a token");
            }
            return Ok(Authenticator::Shared(file));
        }
        if self.stream_without_token || self.stream_tls_client_ca.is_some() {
            return Ok(Authenticator::Open);
        }
        Err(StreamPortError::NoAuthentication)
    }
}

impl StreamPort {
    /// The address of the port.
    ///
    /// # Errors
    /// The system's error.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves streams until the future is dropped.
    ///
    /// # Errors
    /// The system's error if the server can't start or its thread fails.
    pub async fn serve(self, receiver: Arc<dyn Receiver>) -> io::Result<()> {
        let Self { listener, tls, authenticator } = self;
        serve_with(listener, tls, Arc::new(Streams::new(receiver, authenticator))).await
    }
}
