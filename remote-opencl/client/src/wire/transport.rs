//! Connecting to a manager: the handshake, and then the fd channel and the command ring if the manager has them.

use crate::base::clock::{ManagerClock, now_ns};
use crate::memory::fd_channel::{self, FdChannel};
use crate::wire::access::Access;
use crate::wire::address::ManagerAddress;
use crate::wire::command_ring::{self, Futex};
use crate::wire::connection_race::{ConnectionRace, HasSent};
use crate::wire::features::ManagerFeatures;
use crate::wire::handshake::{ConnectError, Handshake, hello};
use crate::wire::inbox::Inbox;
use crate::wire::keepalive::Keepalive;
use crate::wire::outbox::Outbox;
use crate::wire::reconnect::{Reconnect, ResumableConnection};
use crate::wire::timeouts;
use crate::wire::usm::{self, SharedMemory};
use fpga_protocol::v1;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use tonic::transport::Channel;

/// Id of the call that requests a command ring. Other ids of a session count up from 1.
const RING_CALL: u64 = u64::MAX;

/// A session that has begun.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) outbox: Arc<Outbox>,
    pub(crate) inbox: Inbox,
    pub(crate) platforms: Vec<v1::Platform>,
    pub(crate) clock: ManagerClock,
    /// The channel over which descriptors of shared memory come; `None` if there is none.
    pub(crate) fd_channel: Option<FdChannel>,
    pub(crate) features: ManagerFeatures,
    /// Kept alive, since the connection may end with its last handle.
    pub(crate) channel: Channel,
    /// Everything needed to resume the session, if that is configured and the manager keeps the session.
    pub(crate) resumable: Option<ResumableConnection>,
}

/// How a session is opened.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Opening {
    pub(crate) access: Access,
    pub(crate) reconnect: Reconnect,
    pub(crate) keepalive: Keepalive,
}

/// Resolves a TCP manager's name. Not done in the runtime, whose helper thread would take signals of the program.
pub(crate) fn resolve(address: &ManagerAddress) -> io::Result<Vec<SocketAddr>> {
    match address {
        ManagerAddress::Unix(_) => Ok(Vec::new()),
        ManagerAddress::Tcp(host_and_port) => Ok(host_and_port.to_socket_addrs()?.collect()),
    }
}

/// Connects to a manager and opens a session, in a race with other attempts.
pub(crate) async fn connect(
    address: ManagerAddress,
    resolved: Vec<SocketAddr>,
    opening: Opening,
    race: &ConnectionRace,
) -> Result<Connection, ConnectError> {
    let (outbox, has_sent) = (Arc::new(Outbox::default()), HasSent::default());
    let connected = tokio::select! {
        biased;
        connected = connect_alone(address, resolved, opening, &outbox, &has_sent) => connected,
        () = race.silence_timeout(&has_sent) => Err(ConnectError::Timeout),
    };
    match &connected {
        Ok(_) => race.manager_answered(),
        Err(_) => {
            // The manager may have begun a session, which lasts as long as messages may come. The connection's tasks end when
            // they run once more; perhaps no thread drives them later.
            outbox.close();
            tokio::task::yield_now().await;
        }
    }
    connected
}

async fn connect_alone(
    address: ManagerAddress,
    resolved: Vec<SocketAddr>,
    Opening { access, reconnect, keepalive }: Opening,
    outbox: &Arc<Outbox>,
    has_sent: &HasSent,
) -> Result<Connection, ConnectError> {
    let resumable = reconnect == Reconnect::Resume;
    let first = hello(access, v1::Hello { resumable, ..v1::Hello::default() })?;
    let outgoing = outbox.connection(first);
    let handshake = Handshake::perform(&address, &resolved, access, keepalive, outgoing, has_sent).await?;
    let Handshake { channel, stream, welcome } = handshake;
    let clock = ManagerClock::new(welcome.manager_ns, now_ns());
    outbox.start_sending(0)?;
    let fd_channel = open_fd_channel(&address, &welcome.side_key).await;
    let (key, grace) = (welcome.resume_key.clone(), Duration::from_millis(welcome.grace_ms));
    let resumable = if resumable && !key.is_empty() {
        outbox.enable_replay();
        Some(ResumableConnection { address, resolved, keepalive, key, grace })
    } else {
        None
    };
    let features = ManagerFeatures::of(&welcome);
    let inbox = Inbox::of(stream);
    let mut platforms = welcome.platforms;
    let memory = if fd_channel.is_some() { SharedMemory::Yes } else { SharedMemory::No };
    usm::describe(&mut platforms, &welcome.usm, memory);
    let outbox = Arc::clone(outbox);
    let mut connection =
        Connection { outbox, inbox, platforms, clock, fd_channel, features, channel, resumable };
    // A session that can be resumed has no ring, since only messages on the stream can be sent again.
    let ring_words = if connection.resumable.is_none() { welcome.ring_words } else { 0 };
    let futex = if welcome.ring_futex { Futex::Known } else { Futex::Unknown };
    if ring_words > 0 && command_ring::is_enabled() && connection.fd_channel.is_some() {
        timeout(timeouts::welcome(), open_ring(&mut connection, ring_words, futex))
            .await
            .map_err(|_| ConnectError::Timeout)??;
    }
    Ok(connection)
}

/// Moves the session's messages to a command ring, if the manager gives one.
async fn open_ring(connection: &mut Connection, words: u32, futex: Futex) -> Result<(), ConnectError> {
    let Some(fd_channel) = &connection.fd_channel else { return Ok(()) };
    let open = v1::call::Method::OpenRing(v1::OpenRing { futex: true });
    let call = v1::Call { id: RING_CALL, method: Some(open), trace: None };
    connection.outbox.push(v1::client_message::Kind::Call(call));
    connection.outbox.wake();
    match connection.inbox.reply_to(RING_CALL).await? {
        Some(v1::Reply { status: 0, .. }) => {}
        Some(v1::Reply { status, .. }) => {
            tracing::debug!(status, "A device manager gives no command ring");
            return Ok(());
        }
        None => return Err(ConnectError::NoWelcome),
    }
    // The manager uses the ring from now on, so the session fails if the ring can't be opened.
    let (writer, reader) = command_ring::open(fd_channel, RING_CALL, words, futex)?;
    connection.outbox.use_ring(writer);
    connection.inbox.ring = Some(reader);
    Ok(())
}

/// Connects to the fd channel; `None` if the manager has none or it can't be reached.
async fn open_fd_channel(address: &ManagerAddress, key: &[u8]) -> Option<FdChannel> {
    let ManagerAddress::Unix(path) = address else { return None };
    if key.is_empty() || !fd_channel::is_enabled() {
        return None;
    }
    // The manager has sent its Welcome, so it is only busy. Without the channel the session would be slow to its end.
    match timeout(timeouts::welcome(), FdChannel::connect(path, key)).await {
        Ok(Ok(channel)) => Some(channel),
        Ok(Err(error)) => {
            tracing::debug!(%error, "No memory is shared with a device manager");
            None
        }
        Err(_) => None,
    }
}
