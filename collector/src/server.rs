//! Sockets: listens on TCP and on a unix socket, with bounds on connections and on the time that a head may take, and ends
//! in order.

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::{debug, warn};

/// Owner and group may report: device runtimes run as other users, and share the group.
const SOCKET_MODE: u32 = 0o660;
/// Connections at once, over both kinds of socket; a node has a handful of device runtimes.
const MAX_CONNECTIONS: usize = 256;
/// How long the head of a request may take to arrive; also how long a connection may lie idle.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long requests may take to end when the collector does.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Sockets that are bound.
#[derive(Debug, Default)]
pub struct Listeners {
    tcp: Option<TcpListener>,
    unix: Option<(UnixListener, PathBuf)>,
    /// Probes and metrics only.
    metrics: Option<TcpListener>,
}

/// What is served where.
#[derive(Debug, Clone)]
pub struct Routers {
    /// Everything.
    pub all: Router,
    /// What strangers may see.
    pub probes: Router,
}

/// Whether the server is to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// It is.
    Serve,
    /// It is to end.
    End,
}

impl Listeners {
    /// Binds what is asked for.
    ///
    /// # Errors
    /// What the system says, with the address.
    pub async fn bind(
        tcp: Option<SocketAddr>,
        unix: Option<&Path>,
        metrics: Option<SocketAddr>,
    ) -> io::Result<Self> {
        let mut listeners = Self { tcp: bind_tcp(tcp).await?, metrics: bind_tcp(metrics).await?, unix: None };
        if let Some(path) = unix {
            let listener = bind_unix(path).await.map_err(|error| at(&path.display(), &error))?;
            listeners.unix = Some((listener, path.to_owned()));
        }
        Ok(listeners)
    }

    /// The addresses that were bound, as `host:port`, `unix:/path` and `metrics:host:port`.
    ///
    /// # Errors
    /// What the system says.
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

    /// Serves until `phase` says to end, then lets requests end.
    pub async fn serve(self, routers: Routers, mut phase: watch::Receiver<Phase>) {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let mut connections = JoinSet::new();
        loop {
            let Ok(permit) = Arc::clone(&permits).acquire_owned().await else { break };
            tokio::select! {
                stream = accept_tcp(self.tcp.as_ref()) => {
                    let connection = serve_connection(stream, routers.all.clone(), phase.clone());
                    connections.spawn(async move { connection.await; drop(permit); });
                }
                stream = accept_unix(self.unix.as_ref()) => {
                    let connection = serve_connection(stream, routers.all.clone(), phase.clone());
                    connections.spawn(async move { connection.await; drop(permit); });
                }
                stream = accept_tcp(self.metrics.as_ref()) => {
                    let connection = serve_connection(stream, routers.probes.clone(), phase.clone());
                    connections.spawn(async move { connection.await; drop(permit); });
                }
                Some(_) = connections.join_next() => {}
                () = ended(&mut phase) => break,
            }
        }
        drop((self.tcp, self.metrics));
        if let Some((_, path)) = &self.unix {
            // Nobody should find a socket that leads nowhere; if it is gone already, so much the better.
            let _ = std::fs::remove_file(path);
        }
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(DRAIN_TIMEOUT, drained).await.is_err() {
            warn!("Some requests did not end in time");
        }
    }
}

/// Waits to be told to end; that nobody is left to tell it is as good.
pub async fn ended(phase: &mut watch::Receiver<Phase>) {
    let _ = phase.wait_for(|phase| *phase == Phase::End).await;
}

async fn accept_tcp(listener: Option<&TcpListener>) -> tokio::net::TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Only latency is at stake.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => pause_after(&error).await,
        }
    }
}

async fn accept_unix(listener: Option<&(UnixListener, PathBuf)>) -> UnixStream {
    let Some((listener, _)) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => pause_after(&error).await,
        }
    }
}

async fn pause_after(error: &io::Error) {
    warn!(%error, "Cannot accept a connection");
    tokio::time::sleep(ACCEPT_PAUSE).await;
}

async fn serve_connection(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    app: Router,
    mut phase: watch::Receiver<Phase>,
) {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(app));
    tokio::pin!(connection);
    let result = tokio::select! {
        result = &mut connection => result,
        () = ended(&mut phase) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        debug!(%error, "Connection ended");
    }
}

async fn bind_tcp(address: Option<SocketAddr>) -> io::Result<Option<TcpListener>> {
    let Some(address) = address else { return Ok(None) };
    TcpListener::bind(address).await.map(Some).map_err(|error| at(&address, &error))
}

/// Binds `path` for its owner and group, whatever the umask; a socket that a predecessor left behind is replaced, one
/// that is alive is not.
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
