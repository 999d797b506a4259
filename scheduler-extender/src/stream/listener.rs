//! The port of the streams: HTTP/2 with bounds on connections, windows and heads.

use super::{Service, Streams};
use fpga_node_stream::limits::{MAX_MESSAGE_BYTES, PATIENCE};
use fpga_node_stream::v1::node_stream_server::NodeStreamServer;
use futures::Stream;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tracing::warn;

/// Connections at once: some for each node of the largest cluster.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Calls at once on one connection; a collector has one.
const MAX_CALLS: u32 = 4;
/// Flow control windows: a collector has one message on its way.
const WINDOW_BYTES: u32 = 128 * 1024;
/// Longest head of a call.
const MAX_HEAD_BYTES: u32 = 8 * 1024;
/// A connection that carries nothing is asked so often whether it lives.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
/// How often the intervals are reckoned anew.
const RECKON: Duration = Duration::from_secs(5);
/// Pause after a failed accept: out of file descriptors, most likely.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Takes streams on `listener` until the future is dropped.
///
/// They have a thread of their own: ten thousand small messages a second are cheapest where nobody else is woken for
/// them, and must not stand before kube-scheduler's requests.
///
/// # Errors
/// If the server can't go on.
pub async fn serve(listener: TcpListener, streams: Arc<Streams>) -> io::Result<()> {
    let listener = listener.into_std()?;
    let (mut result, ended) = oneshot::channel();
    std::thread::Builder::new().name("fpga-streams".to_owned()).spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let served = runtime.and_then(|runtime| {
            runtime.block_on(async {
                tokio::select! {
                    served = serve_here(TcpListener::from_std(listener)?, streams) => served,
                    () = result.closed() => Ok(()),
                }
            })
        });
        // Nobody may want to know any more.
        let _ = result.send(served);
    })?;
    ended.await.unwrap_or_else(|_| Err(io::Error::other("the streams' thread failed; the log says why")))
}

async fn serve_here(listener: TcpListener, streams: Arc<Streams>) -> io::Result<()> {
    let service = NodeStreamServer::new(Service(Arc::clone(&streams)))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    let server = Server::builder()
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_concurrent_streams(MAX_CALLS)
        .http2_max_header_list_size(MAX_HEAD_BYTES)
        .http2_keepalive_interval(Some(KEEP_ALIVE))
        .http2_keepalive_timeout(Some(PATIENCE))
        .add_service(service)
        .serve_with_incoming(connections(listener));
    let reckoning = async {
        let mut ticks = tokio::time::interval(RECKON);
        loop {
            ticks.tick().await;
            streams.reckon();
        }
    };
    tokio::select! {
        served = server => served.map_err(io::Error::other),
        () = reckoning => Ok(()),
    }
}

fn connections(listener: TcpListener) -> impl Stream<Item = io::Result<Connection>> {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    futures::stream::unfold((listener, permits), |(listener, permits)| async move {
        // The semaphore is never closed.
        let permit = Arc::clone(&permits).acquire_owned().await.ok()?;
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    // Only latency is at stake.
                    let _ = stream.set_nodelay(true);
                    return Some((Ok(Connection { stream, _permit: permit }), (listener, permits)));
                }
                Err(error) => {
                    warn!(%error, "Cannot accept a stream's connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    })
}

/// A connection that counts as long as it is open.
struct Connection {
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
