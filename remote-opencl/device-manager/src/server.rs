//! The service: listeners, and for every connection a thread of its own that does all of its work.
//!
//! A connection's thread runs a single-threaded runtime with HTTP/2 and the session on it, so that from the socket to
//! the vendor's queue there is no other thread to wake.

use crate::budget::Budget;
use crate::config::{Config, SharedMemory};
use crate::connections::{Connections, Open};
use crate::dispatcher::SessionId;
use crate::greeting::{Access, Greeted, Greeting, greet};
use crate::inventory::{Inventory, InventoryError};
use crate::isolation::pool::{Plan, TenantProcesses};
use crate::isolation::relay;
use crate::link::{Lines, Links};
use crate::listen::Listener;
use crate::memory;
use crate::metrics::Metrics;
use crate::outgoing::Outgoing;
use crate::peer::{Accepted, Credentials, Peer};
use crate::quotas::Quotas;
use crate::router::Router;
use crate::segments::{Pool, Sides};
use crate::session::{Incoming, Locality, Session, Shared, Who};
use crate::shutdown::Shutdown;
use crate::socket::Socket;
use fpga_protocol::limits::{MAX_FRAME_BYTES, MAX_MESSAGE_BYTES, WINDOW_BYTES};
use fpga_protocol::v1;
use fpga_protocol::v1::device_manager_server::{DeviceManager, DeviceManagerServer};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};
use tonic::codegen::Service as _;
use tonic::{Request, Response, Status, Streaming};

/// Most sessions of one connection.
const MAX_SESSIONS_PER_CONNECTION: u32 = 8;
/// A connection without a session is closed after this.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take to hear that the manager ends, once its sessions have ended.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);
/// How long a failing `accept` is left alone, as when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Most clients that may be showing their keys at a time.
const MAX_GREETINGS: usize = 64;
/// How often the settings of tenants are looked at.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(1);
/// Sessions are counted from 1.
const NO_SESSION: SessionId = SessionId(0);
/// What may wait in a connection for its socket.
const SEND_BUFFER_BYTES: usize = 4 << 20;
/// Longest headers of a request.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Why the service ends other than by request.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// There is nothing to serve.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// A socket or thread can't be had.
    #[error("the service can't start: {0}")]
    Io(#[from] io::Error),
}

/// Serves sessions on these listeners until the shutdown is requested and all running tasks have ended.
///
/// # Errors
/// [`ServeError`], before anything is served.
pub fn serve(
    config: Config,
    isolation: Option<Plan>,
    listeners: Vec<Listener>,
    shutdown: &Shutdown,
) -> Result<(), ServeError> {
    memory::keep_freed();
    let inventory = Inventory::read()?;
    if config.shared_memory == SharedMemory::On && isolation.is_none() {
        // Now, and not while the first client waits.
        let shared = inventory.works_in_shared_memory();
        tracing::debug!(shared, "Buffers in shared memory were tried");
    }
    let shared = Arc::new(Shared {
        inventory,
        router: Router::default(),
        quotas: Quotas::new(config.settings.clone(), config.metrics.clone()),
        sides: Sides::default(),
        segments: Pool::of_memory(),
        links: Links::new(config.reconnect_grace, config.metrics.clone()),
        shutdown: shutdown.clone(),
        processes: isolation.map(TenantProcesses::new).map(Arc::new),
        config,
    });
    let connections = Connections::default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut accepting = Vec::new();
        for listener in listeners {
            if let Listener::Side(listener) = listener {
                listener.set_nonblocking(true)?;
                let listener = tokio::net::UnixListener::from_std(listener)?;
                accepting.push(tokio::spawn(accept_sides(listener, shared.sides.clone())));
                continue;
            }
            let acceptor = Acceptor::new(listener)?;
            let (shared, connections) = (shared.clone(), connections.clone());
            accepting.push(tokio::spawn(accept(acceptor, shared, connections)));
        }
        accepting.push(tokio::spawn(watch_settings(shared.clone())));
        if let Some(tls) = shared.config.tls.clone() {
            accepting.push(tokio::spawn(async move { tls.keep(|_| {}).await }));
        }
        shutdown.requested().await;
        for task in accepting {
            task.abort();
        }
        if let Some(processes) = &shared.processes {
            processes.drain();
        }
        connections.all_closed().await;
        if let Some(processes) = &shared.processes {
            processes.end().await;
        }
        Ok(())
    })
}

/// Reads what tenants have again, now and then. The file is small and asked for by its content, since mounted
/// configuration is replaced as a whole and keeps its times.
async fn watch_settings(shared: Arc<Shared>) {
    let Config { settings, tenant_args, dispatcher, metrics, access, .. } = &shared.config;
    let mut said = None;
    let mut tokens_said = None;
    loop {
        tokio::time::sleep(SETTINGS_INTERVAL).await;
        if let Access::Token(tokens) | Access::TokenOrConnection(tokens) = access {
            match tokens.reload() {
                Ok(false) => tokens_said = None,
                Ok(true) => tracing::info!(tokens = tokens.len(), "Tokens have changed"),
                Err(error) => say_once(&mut tokens_said, error.to_string(), "Tokens stay as they are"),
            }
        }
        if tenant_args.tenants.is_none() {
            continue;
        }
        match tenant_args.read() {
            Ok(current) => {
                said = None;
                let rules = current.rules.clone();
                if settings.replace(current) {
                    tracing::info!(policy = %rules.policy, "Policy, shares and quotas have changed");
                    metrics.settings_changed.inc();
                    if let Some(processes) = &shared.processes {
                        processes.settings_changed(&shared);
                    }
                    let grants = dispatcher.set_rules(rules);
                    // No session has this id: all grants go to others.
                    shared.router.deliver(grants, NO_SESSION, dispatcher);
                }
            }
            Err(error) => {
                say_once(&mut said, error.to_string(), "Policy, shares and quotas stay as they are");
            }
        }
    }
}

/// Warns of an error that wasn't there the last time.
fn say_once(said: &mut Option<String>, error: String, what: &str) {
    if said.as_ref() != Some(&error) {
        tracing::warn!(%error, "{what}");
        *said = Some(error);
    }
}

#[derive(Debug)]
enum Acceptor {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener),
}

impl Acceptor {
    fn new(listener: Listener) -> io::Result<Self> {
        match listener {
            Listener::Unix(listener) | Listener::Side(listener) => {
                listener.set_nonblocking(true)?;
                tokio::net::UnixListener::from_std(listener).map(Self::Unix)
            }
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(listener).map(Self::Tcp)
            }
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Unix(listener) => listener.accept().await?.0.into_std().map(Accepted::Unix),
            Self::Tcp(listener) => listener.accept().await?.0.into_std().map(Accepted::Tcp),
        }
    }
}

async fn accept(acceptor: Acceptor, shared: Arc<Shared>, connections: Connections) {
    loop {
        match acceptor.accept().await {
            Ok(accepted) => start(accepted, shared.clone(), &connections),
            Err(error) => {
                tracing::warn!(%error, "A connection can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The side socket: a key each, heard on this thread, never more than a few at a time.
async fn accept_sides(listener: tokio::net::UnixListener, sides: Sides) {
    let room = Arc::new(Semaphore::new(MAX_GREETINGS));
    loop {
        // It is never closed.
        let Ok(place) = room.clone().acquire_owned().await else { return };
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => {
                let sides = sides.clone();
                tokio::spawn(async move {
                    if let Err(error) = sides.greet(stream).await {
                        tracing::debug!(%error, "A client showed no key");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "A connection to the side socket can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn start(accepted: Accepted, shared: Arc<Shared>, connections: &Connections) {
    let peer = match accepted.peer(shared.config.keepalive) {
        Ok(peer) => peer,
        Err(error) => return tracing::debug!(%error, "A connection failed"),
    };
    let Some(open) = connections.open(&peer) else {
        return tracing::warn!(?peer, "A connection was closed: there are too many");
    };
    let started = thread::Builder::new().name("session".to_owned()).spawn(move || {
        if let Err(error) = connection(accepted, peer, &shared, open) {
            tracing::debug!(%error, "A connection failed");
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "A connection was closed: there is no thread for it");
    }
}

/// All of a connection's life, on its own thread.
fn connection(accepted: Accepted, peer: Peer, shared: &Arc<Shared>, open: Open) -> io::Result<()> {
    let open = Arc::new(open);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let tls = match (&accepted, &shared.config.tls) {
        (Accepted::Tcp(_), Some(tls)) => Some(tls.clone()),
        _ => None,
    };
    let mut service = Service {
        shared: shared.clone(),
        peer,
        process: accepted.credentials()?,
        open: open.clone(),
        sessions: watch::Sender::new(0),
        opened: Arc::default(),
    };
    runtime.block_on(async {
        let socket = Socket::new(accepted.into())?;
        match tls {
            None => http(socket, &service).await,
            Some(tls) => match handshake(tls.accept(socket), &open).await {
                Some(Ok((stream, names))) => {
                    let Some(name) = names.into_iter().next() else {
                        shared.config.metrics.access_refusals.inc();
                        tracing::info!(peer = ?service.peer, "A certificate without a DNS name proves nobody");
                        return Ok(());
                    };
                    service.peer = Peer::Certificate(name.into());
                    http(stream, &service).await;
                }
                Some(Err(error)) => {
                    shared.config.metrics.access_refusals.inc();
                    tracing::info!(peer = ?service.peer, %error, "A TLS handshake failed");
                }
                None => tracing::debug!(peer = ?service.peer, "A TLS handshake took too long"),
            },
        }
        // The socket may be gone; what runs on the device ends here.
        service.no_session().await;
        Ok(())
    })
}

/// What comes of a handshake, for as long as it may take.
async fn handshake<T>(shakes: impl Future<Output = T>, open: &Open) -> Option<T> {
    tokio::select! {
        shaken = tokio::time::timeout(IDLE_TIMEOUT, shakes) => shaken.ok(),
        () = open.makes_room() => None,
    }
}

async fn http<S>(stream: S, service: &Service)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let server = DeviceManagerServer::new(service.clone())
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let handler = service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let mut server = server.clone();
        async move { server.call(request).await }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_frame_size(MAX_FRAME_BYTES)
        .max_concurrent_streams(MAX_SESSIONS_PER_CONNECTION)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_header_list_size(MAX_HEADER_BYTES);
    if service.process.is_none() {
        service.shared.config.keepalive.ask_client(&mut builder);
    }
    let connection = builder.serve_connection(TokioIo::new(stream), handler);
    tokio::pin!(connection);
    tokio::select! {
        ended = &mut connection => {
            if let Err(error) = ended {
                tracing::debug!(%error, "A connection broke");
            }
        }
        () = service.idle() => {
            tracing::debug!("An idle connection is closed");
        }
        () = service.open.makes_room() => {
            tracing::debug!("A connection without a session makes room");
        }
        () = service.shared.shutdown.requested() => {
            connection.as_mut().graceful_shutdown();
            let farewell = async {
                service.no_session().await;
                tokio::time::sleep(FAREWELL_TIMEOUT).await;
            };
            tokio::select! {
                _ = connection => {}
                // The client does not answer.
                () = farewell => {}
            }
        }
    }
}

/// The sessions of one connection.
#[derive(Debug, Clone)]
struct Service {
    shared: Arc<Shared>,
    peer: Peer,
    /// The client, where it is on this node.
    process: Option<Credentials>,
    /// The connection's place.
    open: Arc<Open>,
    /// How many there are.
    sessions: watch::Sender<usize>,
    /// How many there ever were.
    opened: Arc<AtomicUsize>,
}

impl Service {
    /// Whether memory can be shared with this client.
    fn locality(&self) -> Locality {
        match (self.process, self.shared.config.shared_memory) {
            (Some(process), SharedMemory::On) => Locality::SharesMemory(process),
            _ => Locality::Remote,
        }
    }

    /// All of a session.
    async fn run(&self, greeted: Greeted, budget: Budget, outgoing: Outgoing, client: impl Incoming) {
        self.shared.config.metrics.sessions_opened.inc();
        let locality = self.locality();
        if let Some(processes) = &self.shared.processes {
            return relay::run(processes, &self.shared, greeted, locality, budget, outgoing, client).await;
        }
        let Greeted { tenant, account, client: name, pid, .. } = greeted;
        let id = self.shared.config.dispatcher.new_session();
        let who = Who { id, tenant: tenant.clone(), account, locality };
        let (session, input) = Session::new(self.shared.clone(), who, budget, outgoing);
        tracing::debug!(session = session.id().0, tenant = tenant.as_str(), name, pid, "Session opened");
        session.run(input, client).await;
    }

    /// Waits until there is none.
    async fn no_session(&self) {
        // It can't be closed: this value holds a sender.
        let _ = self.sessions.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Waits until there has been none for [`IDLE_TIMEOUT`].
    async fn idle(&self) {
        loop {
            self.no_session().await;
            let opened = self.opened.load(Ordering::Relaxed);
            let mut sessions = self.sessions.subscribe();
            let some = sessions.wait_for(|count| *count > 0);
            if tokio::time::timeout(IDLE_TIMEOUT, some).await.is_err()
                && opened == self.opened.load(Ordering::Relaxed)
            {
                return;
            }
        }
    }
}

#[tonic::async_trait]
impl DeviceManager for Service {
    type SessionStream = Lines;

    async fn session(
        &self,
        request: Request<Streaming<v1::ClientMessage>>,
    ) -> Result<Response<Lines>, Status> {
        let budget = Budget::default();
        let (outgoing, messages) = Outgoing::new(budget.clone(), self.shared.config.metrics.clone());
        let (lines, link) = Lines::new(messages);
        let mut counted = Counted::new(self);
        let service = self.clone();
        let mut client = request.into_inner();
        tokio::spawn(async move {
            let links = &service.shared.links;
            let greeting = greet(&mut client, &service.shared, &service.peer).await;
            if greeting.is_ok() {
                service.open.is_used();
            }
            match greeting {
                Ok(Greeting::New(greeted)) if greeted.resumable && links.are_on() => {
                    let (outgoing, messages) =
                        Outgoing::new(budget.clone(), service.shared.config.metrics.clone());
                    match links.start(greeted.tenant.clone(), client, messages) {
                        Ok((client, line)) => {
                            // Where the connection has gone already the client comes back by another.
                            let _ = link.send(line);
                            service.run(greeted, budget, outgoing, client).await;
                        }
                        Err(error) => outgoing.end(Status::internal(error.to_string())),
                    }
                }
                Ok(Greeting::New(greeted)) => service.run(greeted, budget, outgoing, client).await,
                Ok(Greeting::Resume { tenant, resume }) => {
                    counted.is_no_session();
                    match links.resume(&tenant, &resume.key, resume.received, client) {
                        Ok(line) => drop(link.send(line.carrying(counted))),
                        Err(status) => {
                            let (tenant, reason) = (tenant.as_str(), status.message());
                            tracing::info!(tenant, reason, "A session can't go on");
                            outgoing.end(status);
                        }
                    }
                    return;
                }
                Err(status) => {
                    tracing::info!(peer = ?service.peer, reason = status.message(), "Session refused");
                    outgoing.end(status);
                }
            }
            drop(counted);
        });
        Ok(Response::new(lines))
    }
}

/// A session in the counts, for as long as it lives.
#[derive(Debug)]
struct Counted {
    service: Service,
    /// Whether it is more than a connection of one.
    metrics: Option<Metrics>,
}

impl Counted {
    fn new(service: &Service) -> Self {
        service.opened.fetch_add(1, Ordering::Relaxed);
        service.sessions.send_modify(|count| *count += 1);
        let metrics = service.shared.config.metrics.clone();
        metrics.sessions.inc();
        Self { service: service.clone(), metrics: Some(metrics) }
    }

    /// It is the connection of a session that is counted already.
    fn is_no_session(&mut self) {
        if let Some(metrics) = self.metrics.take() {
            metrics.sessions.dec();
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.is_no_session();
        self.service.sessions.send_modify(|count| *count -= 1);
    }
}
