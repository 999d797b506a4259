//! HTTP/1.1 over TCP, TLS or a unix socket, with bounds on the number of connections, the time for a head, the idle
//! time, and the time for a graceful end.
//!
//! When all places are taken, the address (or local user) with the most makes room for a new connection of an address
//! with fewer: by a connection that is idle, or else by one with a request in progress. So one address cannot keep
//! others out. A handler reads its request's body through a [`Budget`] that all requests of a service share.

mod budget;
mod connection_limit;
mod open_metrics;
mod probes;
mod watched;

use crate::tls::{HandshakeError, ServerTls};
use axum::Router;
pub use budget::{BodyError, BodyLimits, Budget, Charge, MAX_WAIT, NoRoom};
use connection_limit::{ConnectionLimit, ConnectionState, Origin, Place};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
pub use open_metrics::open_metrics;
pub use probes::serve_probes;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tower::Service as _;
use tracing::{debug, warn};
use watched::Watched;

/// Pause after a failed accept, which most likely means that file descriptors have run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Bounds on all connections of a [`Server`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of connections at once, over all ports.
    pub connections: usize,
    /// Maximum bytes that one connection buffers of heads and bodies, and of answers; at least 8 KiB.
    pub buffer_bytes: usize,
    /// Maximum time for a head, from its first byte; for a connection's first head, from the start of the connection.
    pub head: Duration,
    /// Maximum time that a connection may be idle between requests, or an answer between two packets. It should be
    /// longer than clients keep connections for another request (Go: 90 s), or they use connections that were just
    /// closed.
    pub idle: Duration,
    /// Time that requests in progress are given at the end.
    pub drain: Duration,
}

impl Limits {
    /// For a port with probes and metrics: a kubelet, a Prometheus, and people.
    pub const PROBES: Self = Self {
        connections: 32,
        buffer_bytes: 16 * 1024,
        head: Duration::from_secs(5),
        idle: Duration::from_secs(60),
        drain: Duration::from_secs(1),
    };
}

/// Reason why the server refused or ended a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// All places are taken, and no connection has to make room: all have requests in progress or belong to addresses
    /// with fewer places.
    Full,
    /// A new connection needed the place, or the connection's answer held the most bytes when another request needed
    /// some.
    Evicted,
    /// The TLS handshake failed.
    Handshake,
    /// A head came too slowly. Too long an idle time also ends a connection, but is not a refusal.
    TooSlow,
    /// The bytes were not HTTP, or the connection broke off.
    Malformed,
}

/// A listening socket.
#[derive(Debug)]
pub enum Port {
    /// TCP, with TLS if set.
    Tcp(TcpListener, Option<Arc<ServerTls>>),
    /// A unix socket; its file is removed at the end.
    Unix(UnixListener, PathBuf),
}

/// The other end of a connection; handlers find it among a request's extensions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// A peer on the network.
    Tcp {
        /// Address and port of the peer.
        address: SocketAddr,
        /// The DNS names of the client certificate; empty without one.
        names: Arc<[String]>,
    },
    /// A process of this machine, as the kernel identifies it.
    Unix {
        /// Effective user of the process when it connected.
        uid: u32,
        /// Effective group of the process when it connected.
        gid: u32,
    },
}

/// Callback that gets each refusal, to count it.
type Tell = Arc<dyn Fn(Refusal) + Send + Sync>;

/// A server for one or more ports that share the same bounds.
#[derive(Clone)]
pub struct Server {
    limits: Limits,
    connections: Arc<ConnectionLimit>,
    tell: Tell,
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

impl Refusal {
    /// The text in a metric's label.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Full => "full",
            Self::Evicted => "evicted",
            Self::Handshake => "handshake",
            Self::TooSlow => "too_slow",
            Self::Malformed => "malformed",
        }
    }
}

impl Peer {
    fn origin(&self) -> Origin {
        match self {
            Self::Tcp { address, .. } => Origin::Address(address.ip().to_canonical()),
            Self::Unix { uid, .. } => Origin::User(*uid),
        }
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl Server {
    /// A server with these bounds; `tell` is called for every refusal.
    pub fn new(limits: Limits, tell: impl Fn(Refusal) + Send + Sync + 'static) -> Self {
        Self { limits, connections: Arc::new(ConnectionLimit::new(limits.connections)), tell: Arc::new(tell) }
    }

    /// Answers the requests on `port` by `router` until `stop` is true or its sender is dropped. Then waits up to
    /// [`Limits::drain`] for requests in progress. Dropping the future cuts all connections of this port.
    pub async fn serve(&self, port: Port, router: Router, mut stop: watch::Receiver<bool>) {
        let mut connections = JoinSet::new();
        loop {
            let (stream, peer) = tokio::select! {
                accepted = port.accept() => accepted,
                Some(_) = connections.join_next() => continue,
                () = stopped(&mut stop) => break,
            };
            let Some(place) = self.connections.take(peer.origin()) else {
                (self.tell)(Refusal::Full);
                continue;
            };
            let tls = match &port {
                Port::Tcp(_, tls) => tls.clone(),
                Port::Unix(..) => None,
            };
            let connection =
                Connection { server: self.clone(), place, router: router.clone(), stop: stop.clone() };
            connections.spawn(connection.run(stream, peer, tls));
        }
        if let Port::Unix(_, path) = &port {
            // A client should not find a socket that leads nowhere. An error means that the file is gone already.
            let _ = std::fs::remove_file(path);
        }
        drop(port);
        let drained = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(self.limits.drain, drained).await.is_err() {
            warn!("Requests in progress were cut off");
        }
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}

impl Port {
    async fn accept(&self) -> (Box<dyn Io>, Peer) {
        loop {
            let accepted = match self {
                Self::Tcp(listener, _) => listener.accept().await.map(|(stream, address)| {
                    // An answer is one small write; delaying it to fill a packet would cost more than the answer
                    // itself.
                    let _ = stream.set_nodelay(true);
                    let peer = Peer::Tcp { address, names: Arc::default() };
                    (Box::new(stream) as Box<dyn Io>, peer)
                }),
                Self::Unix(listener, _) => listener.accept().await.and_then(|(stream, _)| {
                    let credentials = stream.peer_cred()?;
                    let peer = Peer::Unix { uid: credentials.uid(), gid: credentials.gid() };
                    Ok((Box::new(stream) as Box<dyn Io>, peer))
                }),
            };
            match accepted {
                Ok(accepted) => return accepted,
                Err(error) => {
                    warn!(%error, "Cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

/// One connection, from its first byte to its last.
struct Connection {
    server: Server,
    place: Place,
    router: Router,
    stop: watch::Receiver<bool>,
}

impl Connection {
    async fn run(self, stream: Box<dyn Io>, peer: Peer, tls: Option<Arc<ServerTls>>) {
        let tell = Arc::clone(&self.server.tell);
        let evicted = self.place.evicted();
        let ended = tokio::select! {
            ended = self.serve(stream, peer, tls) => ended,
            () = evicted => Err(Refusal::Evicted),
        };
        if let Err(refusal) = ended {
            tell(refusal);
        }
    }

    async fn serve(
        self,
        stream: Box<dyn Io>,
        peer: Peer,
        tls: Option<Arc<ServerTls>>,
    ) -> Result<(), Refusal> {
        let Some(tls) = tls else { return self.speak(stream, peer).await };
        match tls.accept(stream).await {
            Ok((stream, shown)) => {
                let peer = match peer {
                    Peer::Tcp { address, .. } => Peer::Tcp { address, names: shown.into() },
                    unix @ Peer::Unix { .. } => unix,
                };
                self.speak(Box::new(stream), peer).await
            }
            Err(error) => {
                match error {
                    HandshakeError::Failed(_) | HandshakeError::Timeout | HandshakeError::Stranger => {
                        debug!(%error, ?peer, "No TLS");
                    }
                    HandshakeError::NoCertificate => warn!(%error, ?peer, "No TLS"),
                }
                Err(Refusal::Handshake)
            }
        }
    }

    async fn speak(mut self, stream: Box<dyn Io>, peer: Peer) -> Result<(), Refusal> {
        let activity = self.place.activity();
        let Limits { head, idle, buffer_bytes, .. } = self.server.limits;
        let stream = Watched::new(stream, Arc::clone(&activity));
        let watch = {
            let activity = Arc::clone(&activity);
            async move { watched::too_slow(&activity, head, idle).await }
        };
        let router = self.router.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            let in_request = activity.begin();
            request.extensions_mut().insert(peer.clone());
            request.extensions_mut().insert(budget::Connection(Arc::clone(&activity)));
            let answer = router.clone().call(request);
            async move {
                let answer = answer.await;
                drop(in_request);
                answer
            }
        });
        let mut builder = http1::Builder::new();
        // hyper's own timer does not tell slow heads from idle connections.
        builder.timer(TokioTimer::new()).header_read_timeout(None).max_buf_size(buffer_bytes);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        tokio::pin!(connection);
        let result = tokio::select! {
            result = async {
                tokio::select! {
                    result = &mut connection => return result,
                    () = stopped(&mut self.stop) => {}
                }
                connection.as_mut().graceful_shutdown();
                connection.await
            } => result,
            slow = watch => match slow {
                ConnectionState::Beginning(_) | ConnectionState::Head(_) => return Err(Refusal::TooSlow),
                ConnectionState::Body(_) | ConnectionState::Request | ConnectionState::Resting(_) => return Ok(()),
            }
        };
        result.map_err(|error| {
            debug!(%error, "Connection ended");
            Refusal::Malformed
        })
    }
}
