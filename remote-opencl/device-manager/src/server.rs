//! The gRPC service: listeners, and a thread for each connection, which does all of the connection's work.
//!
//! The thread runs HTTP/2 and the sessions on a single-threaded runtime, so that no other thread must wake between
//! the socket and the vendor's queue.

mod connection;
mod manager;

use crate::config::{Config, SharedMemory};
use crate::connections::Connections;
use crate::handshake::Access;
use crate::isolation::pool::Plan;
use crate::listen::Listener;
use crate::peer::Accepted;
use crate::pool::broker_stream::{self, Brokers};
use crate::pool::lender::Lender;
use connection::connection;
use fpga_board::dispatch::MIN_STALL;
use fpga_board::slots::SessionId;
use fpga_core::device::{Health, Rotation};
use fpga_session::config as sessions;
use fpga_session::governor::Governor;
use fpga_session::inventory::InventoryError;
use fpga_session::locality::Credentials;
use fpga_session::metrics::Metrics;
use fpga_session::reporting::Reports;
use fpga_session::session::Shared;
use fpga_session::shutdown::Shutdown;
use fpga_session::side_socket::SideSocket;
use manager::Manager;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::task::{AbortHandle, JoinSet};

/// Pause after a failed `accept`, for example when file descriptors run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of clients that may send their keys at a time.
const MAX_GREETINGS: usize = 64;
/// Interval at which the settings of tenants are read.
const SETTINGS_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the collector's last answer is looked at. A manager repeats its status every 15 s.
const ROTATION_INTERVAL: Duration = Duration::from_secs(1);
/// Time for the last tasks of sessions that have outlasted a drain.
const LAST_TASKS_TIMEOUT: Duration = Duration::from_secs(2);
/// An id that no session has: sessions are numbered from 1.
const NO_SESSION: SessionId = SessionId(0);

/// The reason why the service could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The OpenCL runtime can't be loaded, or has no device.
    #[error(transparent)]
    Inventory(#[from] InventoryError),
    /// A socket or a thread can't be had.
    #[error("the service can't start: {0}")]
    Io(#[from] io::Error),
}

/// How the service has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// No session and no task is left.
    Idle,
    /// Tasks still run. Any call that waits for the vendor's runtime may never return.
    TasksRun,
}

/// Serves sessions on `listeners` until a drain has ended: with the last session, or after
/// [`Config::drain_timeout`].
///
/// # Errors
/// [`ServeError`], before any session is served.
pub fn serve(
    config: Config,
    governor: Governor,
    isolation: Option<Plan>,
    listeners: Vec<Listener>,
    shutdown: &Shutdown,
) -> Result<Ended, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let manager = Arc::new(Manager::new(config, governor, isolation, shutdown, runtime.handle())?);
    let Manager { shared, config, processes, .. } = &*manager;
    if config.shared_memory == SharedMemory::On && processes.is_none() {
        // The probe runs now, so that the first client need not wait for it.
        let alignment = shared.inventory.storage_alignment();
        tracing::debug!(?alignment, "Buffers in shared memory were tried");
    }
    let connections = Connections::new(shared.governor.most_without_session());
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
            let (manager, connections) = (manager.clone(), connections.clone());
            accepting.push(tokio::spawn(accept(acceptor, manager, connections)));
        }
        accepting.push(tokio::spawn(watch_settings(manager.clone())));
        accepting.push(tokio::spawn(start_stalled(shared.clone())));
        for tls in [&config.tls, &config.pool_tls].into_iter().flatten() {
            let tls = Arc::clone(tls);
            accepting.push(tokio::spawn(async move { tls.keep(|_| {}).await }));
        }
        let mut lends = lend(&manager);
        shutdown.draining().await;
        if let Some(lender) = &manager.lender {
            lends.abort_all();
            lender.drain();
        }
        drain(&manager).await;
        for task in accepting {
            task.abort();
        }
        if let Some(processes) = processes {
            processes.end_sessions();
        }
        // A task that does not end keeps its session's connection open.
        let timeout = if shutdown.has_failed() { config.drain_timeout } else { LAST_TASKS_TIMEOUT };
        let closed = tokio::time::timeout(timeout, connections.all_closed()).await;
        if let Some(processes) = processes {
            processes.end().await;
        }
        if closed.is_err() {
            return Ok(Ended::TasksRun);
        }
        shared.helper_thread.end();
        Ok(Ended::Idle)
    })
}

/// Starts what lends slots to the pool, until the returned set is aborted; timers go on.
fn lend(manager: &Arc<Manager>) -> JoinSet<()> {
    let mut lends = JoinSet::new();
    let Some(lender) = manager.lender.clone() else { return lends };
    let timers = lender.clone();
    tokio::spawn(async move { timers.keep_time().await });
    let stalled = lender.clone();
    tokio::spawn(async move { stalled.start_stalled(MIN_STALL).await });
    if let Some(brokers) = manager.config.brokers.clone() {
        let reports = manager.config.sessions.reports.clone();
        lends.spawn(async move { lend_in_rotation(&lender, &brokers, &reports).await });
    }
    lends
}

/// Lends slots to the pool, for ever, while the board is in rotation. A board that leaves rotation recalls its leases.
async fn lend_in_rotation(lender: &Lender, brokers: &Brokers, reports: &Reports) {
    loop {
        tokio::select! {
            () = broker_stream::lend(lender, brokers) => {}
            () = rotates(reports, Rotation::Out) => {}
        }
        tracing::info!("The board is cordoned: the pool gets no slots of it");
        lender.drain();
        rotates(reports, Rotation::In).await;
        tracing::info!("The board is in rotation again");
    }
}

/// Waits until the board is in or out of rotation.
async fn rotates(reports: &Reports, rotation: Rotation) {
    while reports.rotation() != rotation {
        tokio::time::sleep(ROTATION_INTERVAL).await;
    }
}

/// Waits until the last session has ended, or for the time that a drain may take. Then ends all sessions.
async fn drain(manager: &Manager) {
    let Manager { shared, config, .. } = manager;
    let shutdown = &shared.shutdown;
    shared.config.health.draining();
    // The collector is told at once: the last session may end before the next check of health.
    shared.config.reports.health(Health::Unhealthy);
    tokio::select! {
        () = shutdown.no_session() => tracing::info!("No session is left"),
        () = shutdown.ending() => {}
        () = tokio::time::sleep(config.drain_timeout) => {
            let (sessions, drain_timeout) = (shutdown.sessions(), config.drain_timeout);
            tracing::warn!(sessions, ?drain_timeout, "Sessions are ended: they have outlasted the drain");
        }
    }
    shutdown.end();
}

/// While tasks wait, starts those for which running tasks may be waiting.
async fn start_stalled(shared: Arc<Shared>) {
    let dispatcher = &shared.config.dispatcher;
    loop {
        dispatcher.tasks_wait().await;
        tokio::time::sleep(MIN_STALL).await;
        // No session has this id, so every grant is delivered to its session.
        shared.router.deliver(dispatcher.start_stalled(), NO_SESSION, dispatcher);
    }
}

/// Reads the settings of tenants and the tokens again at each interval. Compares their content, since mounted
/// configuration is replaced as a whole and keeps its times.
async fn watch_settings(manager: Arc<Manager>) {
    let Manager { shared, config: Config { tenant_args, access, .. }, processes, .. } = &*manager;
    let sessions::Config { settings, dispatcher, metrics, .. } = &shared.config;
    let tokens = match access {
        Access::Token(tokens) | Access::TokenOrConnection(tokens) => Some(tokens),
        Access::Connection => None,
    };
    if tokens.is_none() && tenant_args.tenants.is_none() {
        return;
    }
    let mut said = None;
    let mut tokens_said = None;
    loop {
        tokio::time::sleep(SETTINGS_INTERVAL).await;
        if let Some(tokens) = tokens {
            match tokens.reload() {
                Ok(false) => tokens_said = None,
                Ok(true) => tracing::info!(tokens = tokens.len(), "Tokens have changed"),
                Err(error) => {
                    refused(metrics, &mut tokens_said, error.to_string(), "Some tokens can't be used");
                }
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
                    if let Some(processes) = processes {
                        processes.settings_changed(shared);
                    }
                    let grants = dispatcher.set_rules(rules);
                    // No session has this id, so every grant is delivered to its session.
                    shared.router.deliver(grants, NO_SESSION, dispatcher);
                }
            }
            Err(error) => {
                let what = "Policy, shares and quotas stay as they are";
                refused(metrics, &mut said, error.to_string(), what);
            }
        }
    }
}

/// Warns of an error that differs from the last one, and counts it.
fn refused(metrics: &Metrics, said: &mut Option<String>, error: String, what: &str) {
    if said.as_ref() != Some(&error) {
        metrics.settings_refusals.inc();
        tracing::warn!(%error, "{what}");
        *said = Some(error);
    }
}

#[derive(Debug)]
enum Acceptor {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener),
    Pool(tokio::net::TcpListener),
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
            Listener::Pool(listener) => {
                listener.set_nonblocking(true)?;
                tokio::net::TcpListener::from_std(listener).map(Self::Pool)
            }
        }
    }

    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Unix(listener) => listener.accept().await?.0.into_std().map(Accepted::Unix),
            Self::Tcp(listener) => listener.accept().await?.0.into_std().map(Accepted::Tcp),
            Self::Pool(listener) => listener.accept().await?.0.into_std().map(Accepted::Pool),
        }
    }
}

async fn accept(acceptor: Acceptor, manager: Arc<Manager>, connections: Connections) {
    loop {
        match acceptor.accept().await {
            Ok(accepted) => start(accepted, manager.clone(), &connections),
            Err(error) => {
                tracing::warn!(%error, "A connection can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Accepts connections to the side socket. Their keys are read on this thread, a bounded number at a time. Clients
/// send their keys when they connect, so the client that has been silent for longest makes room.
async fn accept_sides(listener: tokio::net::UnixListener, sides: SideSocket) {
    let mut greetings = VecDeque::new();
    loop {
        match listener.accept().await.and_then(|(stream, _)| stream.into_std()) {
            Ok(stream) => {
                greetings.retain(|greeting: &AbortHandle| !greeting.is_finished());
                if greetings.len() >= MAX_GREETINGS
                    && let Some(longest) = greetings.pop_front()
                {
                    longest.abort();
                }
                let sides = sides.clone();
                let greeting = tokio::spawn(async move {
                    if let Err(error) = sides.greet(stream).await {
                        tracing::debug!(%error, "A client showed no key");
                    }
                });
                greetings.push_back(greeting.abort_handle());
            }
            Err(error) => {
                tracing::warn!(%error, "A connection to the side socket can't be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Whether a tenant's process made the connection, for example by one of its kernels. Such a connection would count
/// as one of the manager's own user.
fn is_of_a_tenants_process(accepted: &Accepted, manager: &Manager) -> bool {
    let Some(processes) = &manager.processes else { return false };
    accepted.credentials().is_ok_and(|process| {
        process.and_then(Credentials::process).is_some_and(|process| processes.have(process))
    })
}

fn start(accepted: Accepted, manager: Arc<Manager>, connections: &Connections) {
    let peer = match accepted.peer(manager.config.keepalive) {
        Ok(peer) => peer,
        Err(error) => return tracing::debug!(%error, "A connection failed"),
    };
    if is_of_a_tenants_process(&accepted, &manager) {
        manager.shared.config.metrics.access_refusals.inc();
        return tracing::warn!(?peer, "A connection was closed: a tenant's process made it");
    }
    let Some(open) = connections.open(&peer) else {
        return tracing::warn!(?peer, "A connection was closed: there are too many");
    };
    let started = thread::Builder::new().name("session".to_owned()).spawn(move || {
        if let Err(error) = connection(accepted, peer, &manager, open) {
            tracing::debug!(%error, "A connection failed");
        }
    });
    if let Err(error) = started {
        tracing::warn!(%error, "A connection was closed: there is no thread for it");
    }
}
