//! Connecting to a manager: socket, HTTP/2, gRPC, and the handshake.

use crate::base::clock::{Offset, now_ns};
use crate::memory::segments::{Buffers, Side, is_wanted};
use crate::wire::address::ManagerAddress;
use crate::wire::codec::SessionCodec;
use crate::wire::command_ring::{self, RingError, RingReader};
use crate::wire::keepalive::Keepalive;
use crate::wire::kept::WrongCount;
use crate::wire::outbox::{Outbox, OutboxStream};
use crate::wire::proof;
use crate::wire::reconnect::{Back, Reconnect, Way};
use crate::wire::socket;
use fpga_net::tls::HTTP_2;
use fpga_protocol::{limits, v1};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tokio::time::timeout;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status, Streaming};

/// Environment variable that raises [`CONNECT_TIMEOUT`], in ms; for networks and tools, such as Valgrind, that are
/// slow.
const PATIENCE_VARIABLE: &str = "FPGA_CONNECT_TIMEOUT_MS";

/// Time for a socket to connect. Short, since a dead manager must not delay a program that uses others.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(250);

/// Time for a manager that accepted the connection to send its Welcome, in multiples of the connect timeout. Long,
/// since the manager may have to start a process for the tenant, whose runtime takes seconds to load on a busy node.
const WELCOME_TIMES: u32 = 40;

/// Time for which a manager that sent nothing may delay a program after another manager has answered, in multiples
/// of the connect timeout.
const SILENCE_TIMES: u32 = 4;

/// Id of the call that requests a command ring. Other ids of a session count up from 1.
const RING_CALL: u64 = u64::MAX;

type Spoken = (Channel, Streaming<v1::ServerMessage>, v1::Welcome);

const METHOD: &str = "/fpga.remote.v1.DeviceManager/Session";

/// A session that has begun.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) inbox: Inbox,
    pub(crate) platforms: Vec<v1::Platform>,
    pub(crate) offset: Offset,
    /// The side socket, over which descriptors of shared memory come; `None` if there is none.
    pub(crate) side: Option<Side>,
    /// Whether buffers can lie in shared memory.
    pub(crate) buffers: Buffers,
    pub(crate) rects: Rects,
    /// Kept alive, since the connection may end with its last handle.
    pub(crate) channel: Channel,
    /// Everything needed to resume the session, if that is configured and the manager keeps the session.
    pub(crate) way: Option<Way>,
}

/// Whether a manager has commands on rectangles of bytes. Managers before version 0.2 don't.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rects {
    Known,
    Unknown,
}

/// The sources of a manager's messages: the stream, and the command ring if there is one. The end of the stream is
/// the end of the session.
#[derive(Debug)]
pub(crate) struct Inbox {
    pub(crate) stream: Streaming<v1::ServerMessage>,
    pub(crate) ring: Option<Arc<RingReader>>,
}

/// An event of an [`Inbox`].
#[derive(Debug)]
pub(crate) enum Arrived {
    /// The manager has rung, or the ring failed. There may be messages or room in the ring.
    Rung(Result<(), RingError>),
    /// A message, the end, or an error of the stream.
    Stream(Result<Option<v1::ServerMessage>, Status>),
}

impl Inbox {
    /// Waits for the next event.
    pub(crate) async fn arrived(&mut self) -> Arrived {
        let Self { stream, ring } = self;
        match ring {
            None => Arrived::Stream(stream.message().await),
            Some(ring) => tokio::select! {
                biased;
                rung = ring.rung() => Arrived::Rung(rung),
                message = stream.message() => Arrived::Stream(message),
            },
        }
    }
}

/// A reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("can't connect: {0}")]
    Transport(#[from] tonic::transport::Error),
    #[error("TLS: {0}")]
    Tls(#[from] fpga_net::tls::ConnectError),
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("refused: {0}")]
    Refused(#[from] Status),
    #[error("no answer in time")]
    Timeout,
    #[error("the manager didn't greet")]
    NoWelcome,
    #[error(transparent)]
    WrongCount(#[from] WrongCount),
}

fn connect_timeout() -> Duration {
    let wanted = std::env::var(PATIENCE_VARIABLE).ok().and_then(|text| text.parse().ok());
    wanted.map(Duration::from_millis).unwrap_or_default().max(CONNECT_TIMEOUT)
}

fn welcome_timeout() -> Duration {
    connect_timeout().saturating_mul(WELCOME_TIMES)
}

/// Resolves a TCP manager's name. Not done in the runtime, whose helper thread would take signals of the program.
pub(crate) fn resolve(address: &ManagerAddress) -> io::Result<Vec<SocketAddr>> {
    match address {
        ManagerAddress::Unix(_) => Ok(Vec::new()),
        ManagerAddress::Tcp(host_and_port) => Ok(host_and_port.to_socket_addrs()?.collect()),
    }
}

/// The state shared by connection attempts that race each other.
#[derive(Debug)]
pub(crate) struct Company {
    answered: AtomicBool,
    heard: Notify,
}

impl Company {
    /// `others_answer`: whether there are sessions with other managers already.
    pub(crate) fn new(others_answer: bool) -> Self {
        Self { answered: AtomicBool::new(others_answer), heard: Notify::new() }
    }

    /// Ends some time after another manager has answered, unless this one has sent something (`lives`). So a
    /// manager that accepts connections and sends nothing, such as a stopped process, delays no other. It never
    /// ends if this is the only manager.
    async fn goes_on_without(&self, lives: &AtomicBool) {
        let heard = self.heard.notified();
        if !self.answered.load(Ordering::Acquire) {
            heard.await;
        }
        tokio::time::sleep(connect_timeout().saturating_mul(SILENCE_TIMES)).await;
        if lives.load(Ordering::Acquire) {
            std::future::pending::<()>().await;
        }
    }
}

/// Connects to a manager and opens a session, in a race with other attempts.
pub(crate) async fn connect(
    address: ManagerAddress,
    resolved: Vec<SocketAddr>,
    reconnect: Reconnect,
    keepalive: Keepalive,
    company: &Company,
) -> Result<Connection, ConnectError> {
    let lives = AtomicBool::new(false);
    let connection = tokio::select! {
        biased;
        connection = connect_alone(address, resolved, reconnect, keepalive, &lives) => connection?,
        () = company.goes_on_without(&lives) => return Err(ConnectError::Timeout),
    };
    company.answered.store(true, Ordering::Release);
    company.heard.notify_waiters();
    Ok(connection)
}

async fn connect_alone(
    address: ManagerAddress,
    resolved: Vec<SocketAddr>,
    reconnect: Reconnect,
    keepalive: Keepalive,
    lives: &AtomicBool,
) -> Result<Connection, ConnectError> {
    let outbox = Arc::new(Outbox::default());
    let resumable = reconnect == Reconnect::Resume;
    let first = hello(v1::Hello { resumable, ..v1::Hello::default() })?;
    let said = outbox.connection(first);
    let (channel, stream, welcome) = speak(&address, &resolved, keepalive, said, lives).await?;
    let offset = Offset::new(welcome.manager_ns, now_ns());
    outbox.go_on(0)?;
    let side = side(&address, &welcome.side_key).await;
    let (key, grace) = (welcome.resume_key, Duration::from_millis(welcome.grace_ms));
    let way = if resumable && !key.is_empty() {
        outbox.keep_what_is_sent();
        Some(Way { address, resolved, keepalive, key, grace })
    } else {
        None
    };
    let buffers = if welcome.buffers_in_segments { Buffers::InSegments } else { Buffers::WithTheManager };
    let rects = if welcome.buffer_rects { Rects::Known } else { Rects::Unknown };
    let inbox = Inbox { stream, ring: None };
    let platforms = welcome.platforms;
    let mut connection = Connection { outbox, inbox, platforms, offset, side, buffers, rects, channel, way };
    // A session that can be resumed has no ring, since only messages on the stream can be sent again.
    let ring_words = if connection.way.is_none() { welcome.ring_words } else { 0 };
    if ring_words > 0 && command_ring::is_wanted() && connection.side.is_some() {
        timeout(welcome_timeout(), open_ring(&mut connection, ring_words))
            .await
            .map_err(|_| ConnectError::Timeout)??;
    }
    Ok(connection)
}

/// Connects to a manager and resumes a session.
pub(crate) async fn resume(
    address: &ManagerAddress,
    resolved: &[SocketAddr],
    keepalive: Keepalive,
    resume: v1::Resume,
    outbox: &Arc<Outbox>,
) -> Result<Back, ConnectError> {
    let first = hello(v1::Hello { resume: Some(resume), ..v1::Hello::default() })?;
    let (said, lives) = (outbox.connection(first), AtomicBool::new(false));
    let (channel, stream, welcome) = speak(address, resolved, keepalive, said, &lives).await?;
    outbox.go_on(welcome.received)?;
    Ok(Back { inbox: Inbox { stream, ring: None }, channel })
}

fn hello(hello: v1::Hello) -> Result<v1::ClientMessage, ConnectError> {
    let hello = v1::Hello {
        protocol_version: limits::PROTOCOL_VERSION,
        token: proof::token()?,
        client_name: client_name(),
        pid: std::process::id(),
        ..hello
    };
    Ok(v1::ClientMessage { kind: Some(v1::client_message::Kind::Hello(hello)) })
}

/// Opens a connection that sends the messages of `said`, and waits for the Welcome. Sets `lives` once the manager
/// has sent anything.
async fn speak(
    address: &ManagerAddress,
    resolved: &[SocketAddr],
    keepalive: Keepalive,
    said: OutboxStream,
    lives: &AtomicBool,
) -> Result<Spoken, ConnectError> {
    let socket = timeout(connect_timeout(), socket::connect(address, resolved)).await;
    let socket = socket.map_err(|_| ConnectError::Timeout)??;
    let greeted = async {
        match (address, proof::tls()) {
            (ManagerAddress::Tcp(host_and_port), Some(files)) => {
                let host = host_and_port.rsplit_once(':').map_or(host_and_port.as_str(), |(host, _)| host);
                greet(files.connect(socket, host, HTTP_2).await?, keepalive, said, lives).await
            }
            (ManagerAddress::Tcp(_), None) => greet(socket, keepalive, said, lives).await,
            // No pings: the kernel reports the end of a unix socket's peer.
            (ManagerAddress::Unix(_), _) => {
                greet(socket, Keepalive::within(Duration::ZERO), said, lives).await
            }
        }
    };
    timeout(welcome_timeout(), greeted).await.map_err(|_| ConnectError::Timeout)?
}

/// Moves the session's messages to a command ring, if the manager gives one.
async fn open_ring(connection: &mut Connection, words: u32) -> Result<(), ConnectError> {
    let Some(side) = &connection.side else { return Ok(()) };
    let open = v1::call::Method::OpenRing(v1::OpenRing {});
    let call = v1::Call { id: RING_CALL, method: Some(open) };
    connection.outbox.push(v1::client_message::Kind::Call(call));
    connection.outbox.wake();
    match connection.inbox.stream.message().await?.and_then(|message| message.kind) {
        Some(v1::server_message::Kind::Reply(v1::Reply { id: RING_CALL, status: 0, .. })) => {}
        Some(v1::server_message::Kind::Reply(v1::Reply { id: RING_CALL, status, .. })) => {
            tracing::debug!(status, "A device manager gives no command ring");
            return Ok(());
        }
        _ => return Err(ConnectError::NoWelcome),
    }
    // The manager uses the ring from now on, so the session fails if the ring can't be opened.
    let (writer, reader) = command_ring::open(side, RING_CALL, words)?;
    connection.outbox.over(writer);
    connection.inbox.ring = Some(reader);
    Ok(())
}

/// Connects to the side socket; `None` if the manager has none or it can't be reached.
async fn side(address: &ManagerAddress, key: &[u8]) -> Option<Side> {
    let ManagerAddress::Unix(path) = address else { return None };
    if key.is_empty() || !is_wanted() {
        return None;
    }
    match timeout(connect_timeout(), Side::connect(path, key)).await {
        Ok(Ok(side)) => Some(side),
        Ok(Err(error)) => {
            tracing::debug!(%error, "No memory is shared with a device manager");
            None
        }
        Err(_) => None,
    }
}

async fn greet<S>(
    socket: S,
    keepalive: Keepalive,
    said: OutboxStream,
    lives: &AtomicBool,
) -> Result<Spoken, ConnectError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut socket = Some(TokioIo::new(socket));
    let connector = tower::service_fn(move |_: Uri| {
        // The connector connects only once. Another attempt is up to the caller.
        let socket = socket.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
        async move { socket }
    });
    let endpoint = Endpoint::from_static("http://device-manager")
        .initial_stream_window_size(limits::WINDOW_BYTES)
        .initial_connection_window_size(limits::WINDOW_BYTES)
        .max_frame_size(limits::MAX_FRAME_BYTES);
    let channel = keepalive.ask(endpoint).connect_with_connector(connector).await?;
    let mut grpc =
        tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(limits::MAX_MESSAGE_BYTES);
    grpc.ready().await?;
    let path = PathAndQuery::from_static(METHOD);
    let mut inbox = grpc.streaming(Request::new(said), path, SessionCodec).await?.into_inner();
    // The manager sends response headers before it has the content of its Welcome.
    lives.store(true, Ordering::Release);
    match inbox.message().await?.and_then(|message| message.kind) {
        Some(v1::server_message::Kind::Welcome(welcome)) => Ok((channel, inbox, welcome)),
        _ => Err(ConnectError::NoWelcome),
    }
}

/// The program's name, for the manager's logs.
fn client_name() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&program).file_name().unwrap_or_default();
    name.to_string_lossy().chars().take(64).collect()
}
