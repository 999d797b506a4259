//! The handshake with a manager: socket, TLS, HTTP/2, gRPC, Hello, and Welcome.

use crate::wire::access::{Access, Tls};
use crate::wire::address::ManagerAddress;
use crate::wire::codec::SessionCodec;
use crate::wire::connection_race::HasSent;
use crate::wire::keepalive::Keepalive;
use crate::wire::outbox::OutboxStream;
use crate::wire::replay_buffer::WrongCount;
use crate::wire::{socket, timeouts};
use fpga_net::tls::HTTP_2;
use fpga_protocol::{limits, v1};
use hyper_util::rt::TokioIo;
use std::io;
use std::net::SocketAddr;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status, Streaming};

const METHOD: &str = "/fpga.remote.v1.DeviceManager/Session";

/// A connection whose manager has sent its Welcome.
#[derive(Debug)]
pub(crate) struct Handshake {
    pub(crate) channel: Channel,
    pub(crate) stream: Streaming<v1::ServerMessage>,
    pub(crate) welcome: v1::Welcome,
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

/// The first message of a connection: `hello` with what every Hello has.
pub(crate) fn hello(access: Access, hello: v1::Hello) -> Result<v1::ClientMessage, ConnectError> {
    let hello = v1::Hello {
        protocol_version: limits::PROTOCOL_VERSION,
        token: access.token()?,
        lease: access.lease(),
        client_name: client_name(),
        pid: std::process::id(),
        ..hello
    };
    Ok(v1::ClientMessage { kind: Some(v1::client_message::Kind::Hello(hello)) })
}

impl Handshake {
    /// Opens a connection that sends the messages of `outgoing`, and waits for the Welcome. Sets `has_sent` once the
    /// manager has sent anything.
    pub(crate) async fn perform(
        address: &ManagerAddress,
        resolved: &[SocketAddr],
        access: Access,
        keepalive: Keepalive,
        outgoing: OutboxStream,
        has_sent: &HasSent,
    ) -> Result<Self, ConnectError> {
        let socket = timeout(timeouts::connect(), socket::connect(address, resolved)).await;
        let socket = socket.map_err(|_| ConnectError::Timeout)??;
        let welcomed = async {
            let ManagerAddress::Tcp(host_and_port) = address else {
                return Self::over(socket, access.keepalive_of_unix(keepalive), outgoing, has_sent).await;
            };
            match access.tls() {
                Tls::Files(files) => {
                    let host =
                        host_and_port.rsplit_once(':').map_or(host_and_port.as_str(), |(host, _)| host);
                    let socket = files.connect(socket, host, HTTP_2).await?;
                    Self::over(socket, keepalive, outgoing, has_sent).await
                }
                Tls::Pinned(key) => {
                    let socket = key.connect(socket, HTTP_2).await?;
                    Self::over(socket, keepalive, outgoing, has_sent).await
                }
                Tls::None => Self::over(socket, keepalive, outgoing, has_sent).await,
            }
        };
        timeout(timeouts::welcome(), welcomed).await.map_err(|_| ConnectError::Timeout)?
    }

    async fn over<S>(
        socket: S,
        keepalive: Keepalive,
        outgoing: OutboxStream,
        has_sent: &HasSent,
    ) -> Result<Self, ConnectError>
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
        let channel = keepalive.configure(endpoint).connect_with_connector(connector).await?;
        let mut grpc =
            tonic::client::Grpc::new(channel.clone()).max_decoding_message_size(limits::MAX_MESSAGE_BYTES);
        grpc.ready().await?;
        let path = PathAndQuery::from_static(METHOD);
        let mut stream = grpc.streaming(Request::new(outgoing), path, SessionCodec).await?.into_inner();
        // The manager sends response headers before it has the content of its Welcome.
        has_sent.set();
        match stream.message().await?.and_then(|message| message.kind) {
            Some(v1::server_message::Kind::Welcome(welcome)) => Ok(Self { channel, stream, welcome }),
            _ => Err(ConnectError::NoWelcome),
        }
    }
}

/// The program's name, for the manager's logs.
fn client_name() -> String {
    let program = std::env::args_os().next().unwrap_or_default();
    let name = std::path::Path::new(&program).file_name().unwrap_or_default();
    name.to_string_lossy().chars().take(64).collect()
}
