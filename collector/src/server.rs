//! The collector's listening sockets, TCP and unix, with bounds on connections and on the time for a request's head,
//! and a graceful end.

use crate::metrics::Metrics;
use axum::Router;
use fpga_net::http::{Limits, Port, Server};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::watch;

/// Owner and group may report: device runtimes run as other users and share the group.
const SOCKET_MODE: u32 = 0o660;
/// Bounds for a node with a handful of device runtimes, each with one or two connections.
const LIMITS: Limits = Limits {
    connections: 256,
    // A body that arrives holds twice as much, beside the budget of bytes in flight.
    buffer_bytes: 16 * 1024,
    head: Duration::from_secs(10),
    // Reporters send a device status every 15 s.
    idle: Duration::from_secs(60),
    drain: Duration::from_secs(5),
};

#[derive(Debug, Default)]
pub struct Listeners {
    tcp: Option<TcpListener>,
    unix: Option<(UnixListener, PathBuf)>,
    /// The socket for probes and metrics only.
    metrics: Option<TcpListener>,
}

/// The routes of each socket.
#[derive(Debug, Clone)]
pub struct Routers {
    pub all: Router,
    /// The routes for untrusted clients: probes and metrics.
    pub probes: Router,
}

/// Whether the server goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Serve,
    End,
}

impl Listeners {
    /// Binds the given addresses.
    ///
    /// # Errors
    /// The system's error, with the address.
    pub async fn bind(
        tcp: Option<SocketAddr>,
        unix: Option<&Path>,
        metrics: Option<SocketAddr>,
    ) -> io::Result<Self> {
        let mut listeners = Self { tcp: bind_tcp(tcp)?, metrics: bind_tcp(metrics)?, unix: None };
        if let Some(path) = unix {
            let listener = bind_unix(path).await.map_err(|error| at(&path.display(), &error))?;
            listeners.unix = Some((listener, path.to_owned()));
        }
        Ok(listeners)
    }

    /// The bound addresses, as `host:port`, `unix:/path` and `metrics:host:port`.
    ///
    /// # Errors
    /// The system's error if a socket has no address.
    pub fn addresses(&self) -> io::Result<Vec<String>> {
        let mut addresses = Vec::new();
        if let Some(tcp) = &self.tcp {
            addresses.push(tcp.local_addr()?.to_string());
        }
        if let Some((_, path)) = &self.unix {
            addresses.push(format!("unix:{}", path.display()));
        }
        if let Some(metrics) = &self.metrics {
            addresses.push(format!("metrics:{}", metrics.local_addr()?));
        }
        Ok(addresses)
    }

    /// Serves until `phase` is [`Phase::End`], then waits for requests in progress. `counts` counts refused
    /// connections.
    pub async fn serve(self, routers: Routers, counts: Metrics, mut phase: watch::Receiver<Phase>) {
        let (stop, stopped) = watch::channel(false);
        let told = counts.clone();
        let all = Server::new(LIMITS, move |refusal| told.refuse_connection(refusal));
        // A server of its own, so that untrusted clients can't take the places of reporters.
        let probes = Server::new(LIMITS, move |refusal| counts.refuse_connection(refusal));
        let serve = async |server: &Server, port: Option<Port>, router: &Router| {
            if let Some(port) = port {
                server.serve(port, router.clone(), stopped.clone()).await;
            }
        };
        let tcp = self.tcp.map(|listener| Port::Tcp(listener, None));
        let unix = self.unix.map(|(listener, path)| Port::Unix(listener, path));
        let metrics = self.metrics.map(|listener| Port::Tcp(listener, None));
        tokio::join!(
            serve(&all, tcp, &routers.all),
            serve(&all, unix, &routers.all),
            serve(&probes, metrics, &routers.probes),
            async {
                ended(&mut phase).await;
                stop.send_replace(true);
            }
        );
    }
}

/// Waits until `phase` is [`Phase::End`] or its sender is dropped.
pub async fn ended(phase: &mut watch::Receiver<Phase>) {
    let _ = phase.wait_for(|phase| *phase == Phase::End).await;
}

fn bind_tcp(address: Option<SocketAddr>) -> io::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    fpga_net::listen::bind(address).map(Some).map_err(|error| at(&address, &error))
}

/// Binds `path` with access for owner and group, whatever the umask. A socket file that no process listens on any
/// more is replaced.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    let listener = match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            if UnixStream::connect(path).await.is_ok() {
                return Err(error);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)?
        }
        result => result?,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

fn at(address: &dyn std::fmt::Display, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
}
