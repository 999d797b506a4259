//! The HTTP ports: addresses and certificates.
//!
//! The main port is kube-scheduler's. It listens on the loopback address that both share, or with `--tls-client-ca`
//! requires a client certificate. Further ports are plain HTTP and make no decisions: `--read-listen` for people and
//! their tools, `--metrics-listen` for probes and Prometheus only.

pub mod metrics;
pub mod serve;

use anyhow::{Context as _, Result, bail};
use axum::Router;
use fpga_extender_api::READ_AUDIENCE;
use fpga_net::http::Port;
use fpga_net::read_access::{ReadAccess, ReadRule};
use fpga_net::tls::{HTTP_1, Reload, ServerFiles, ServerTls};
use metrics::{PortMetrics, PortName};
use serve::serve_ports;
use std::future::Future;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpListener;

/// Addresses and certificates of the HTTP ports.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Ports")]
pub struct PortArgs {
    /// Certificate (PEM, with its chain) of the HTTPS port; a changed file applies to new connections.
    #[arg(long, env = "FPGA_TLS_CERT", value_name = "PATH", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Private key of the certificate (PEM).
    #[arg(long, env = "FPGA_TLS_KEY", value_name = "PATH", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Authorities (PEM) that must have signed kube-scheduler's client certificate; without them no client
    /// certificate is needed.
    #[arg(long, env = "FPGA_TLS_CLIENT_CA", value_name = "PATH", requires = "tls_cert")]
    pub tls_client_ca: Option<PathBuf>,
    /// Address for people and their tools, plain HTTP; port 0 takes a free one. It serves all that the main port
    /// serves except the verbs: /nodes, /explain, /config, /version, probes and metrics.
    #[arg(long, env = "FPGA_READ_LISTEN", value_name = "ADDRESS")]
    pub read_listen: Option<SocketAddr>,
    /// Who may read at --read-listen, and at a main port beyond this machine that asks for no client certificate.
    /// `token`: owners of a service account's token for the audience fpga-scheduler-extender-read who may get the
    /// pods of the namespace in question, or else of all namespaces. Needs the right to create tokenreviews and
    /// subjectaccessreviews. Probes and /version need no token. `anyone`: everybody, for a trial.
    #[arg(long, env = "FPGA_READ_ACCESS", value_name = "RULE", default_value = "token")]
    pub read_access: ReadRule,
    /// Address for probes and metrics only, plain HTTP; port 0 takes a free one. The main port serves both as well.
    #[arg(long, env = "FPGA_METRICS_LISTEN", value_name = "ADDRESS")]
    pub metrics_listen: Option<SocketAddr>,
}

/// The open ports.
#[derive(Debug)]
pub struct Ports {
    http: TcpListener,
    tls: Option<Arc<ServerTls>>,
    read: Option<TcpListener>,
    probes: Option<TcpListener>,
}

/// The checks of readers at each port; `None` if its readers need no token.
#[derive(Debug)]
pub struct Readers {
    /// At the main port.
    pub main: Option<Arc<ReadAccess>>,
    /// At the port for people and their tools.
    pub reading: Option<Arc<ReadAccess>>,
}

/// The routes of each port.
#[derive(Debug)]
pub struct Routers {
    /// Routes of the main port.
    pub all: Router,
    /// Routes of the port for people and their tools.
    pub reading: Router,
    /// Routes of the port for probes and Prometheus.
    pub probes: Router,
}

impl PortArgs {
    /// The checks of readers, where the main port is at `listen`.
    #[must_use]
    pub fn readers(&self, listen: SocketAddr, client: &kube::Client) -> Readers {
        let checked = || ReadAccess::new(client.clone(), READ_AUDIENCE);
        let reading = (self.read_access == ReadRule::Token).then(checked);
        let is_for_one = listen.ip().is_loopback() || self.tls_client_ca.is_some();
        Readers { main: reading.clone().filter(|_| !is_for_one), reading }
    }

    /// Opens the ports, the main one at `listen`.
    ///
    /// # Errors
    /// An address can't be bound, or the certificate can't be used.
    pub fn open(&self, listen: SocketAddr) -> Result<Ports> {
        let tls = match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                let files = ServerFiles {
                    certificate: certificate.clone(),
                    key: key.clone(),
                    client_ca: self.tls_client_ca.clone(),
                };
                let tls = ServerTls::new(files, HTTP_1);
                if let Reload::Failed(error) = tls.reload() {
                    bail!("--tls-cert, --tls-key or --tls-client-ca is no good: {error}");
                }
                Some(Arc::new(tls))
            }
            _ => None,
        };
        let also = |address: Option<SocketAddr>, flag| address.map(|address| bind(address, flag)).transpose();
        Ok(Ports {
            http: bind(listen, "--listen")?,
            tls,
            read: also(self.read_listen, "--read-listen")?,
            probes: also(self.metrics_listen, "--metrics-listen")?,
        })
    }
}

fn bind(address: SocketAddr, flag: &str) -> Result<TcpListener> {
    let listener = fpga_net::listen::bind(address);
    listener.with_context(|| format!("can't listen on {address}; choose another address with {flag}"))
}

impl Ports {
    /// The address of the main port, then `read:ADDRESS` and `metrics:ADDRESS` for the other open ports.
    ///
    /// # Errors
    /// The system's error if an address can't be read.
    pub fn addresses(&self) -> std::io::Result<Vec<String>> {
        let mut addresses = vec![self.http.local_addr()?.to_string()];
        for (name, port) in [("read", &self.read), ("metrics", &self.probes)] {
            if let Some(port) = port {
                addresses.push(format!("{name}:{}", port.local_addr()?));
            }
        }
        Ok(addresses)
    }

    /// The protection of the main port, for the log.
    #[must_use]
    pub fn protection(&self) -> &'static str {
        match &self.tls {
            None => "none",
            Some(tls) if tls.asks_clients() => "mutual TLS",
            Some(_) => "TLS",
        }
    }

    /// Serves the ports as [`serve_ports`] does, and reloads the certificate when its files change.
    pub async fn serve(
        self,
        routers: Routers,
        metrics: &PortMetrics,
        stop: impl Future<Output = ()>,
        cut: impl Future<Output = ()>,
    ) {
        let keep = keep(self.tls.clone(), PortName::Http, metrics);
        let mut ports = vec![(PortName::Http, Port::Tcp(self.http, self.tls), routers.all)];
        let others =
            [(PortName::Read, self.read, routers.reading), (PortName::Metrics, self.probes, routers.probes)];
        for (name, listener, router) in others {
            if let Some(listener) = listener {
                ports.push((name, Port::Tcp(listener, None), router));
            }
        }
        tokio::select! {
            () = serve_ports(ports, metrics, stop, cut) => {}
            () = keep => {}
        }
    }
}

/// Reloads the certificates of `tls` when their files change, and updates the metrics. Never returns.
pub async fn keep(tls: Option<Arc<ServerTls>>, port: PortName, metrics: &PortMetrics) {
    match tls {
        Some(tls) => {
            metrics.valid_until(port, tls.expiry());
            let tell = |reload: &Reload| {
                metrics.reloaded(port, reload);
                metrics.valid_until(port, tls.expiry());
            };
            tls.keep(tell).await;
        }
        None => std::future::pending().await,
    }
}
