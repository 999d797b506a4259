//! The port of the streams: HTTP/2, with TLS if there is a certificate, and limits on connections, windows and
//! headers.

use super::authenticator::NodeScope;
use super::connection::Connection;
use super::service::Service;
use super::streams::Streams;
use crate::limits::{ANSWER_TIMEOUT, IDLE_TIMEOUT, MAX_MESSAGE_BYTES};
use crate::v1::node_stream_server::NodeStreamServer;
use fpga_net::http::Refusal;
use fpga_net::tls::{Reload, ServerTls};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tonic::codegen::Service as _;
use tracing::{debug, warn};

/// Most connections at once: several for each node of the largest cluster.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Most calls at once on a connection; a collector has one.
const MAX_CALLS: u32 = 4;
/// Flow control window in bytes; a collector has one message in flight.
const WINDOW_BYTES: u32 = 128 * 1024;
/// Bytes that may wait to be sent on a call; an answer has a dozen.
const SEND_BYTES: usize = 4 * 1024;
/// Longest headers of a call in bytes; a service account's token has one or two thousand.
const MAX_HEAD_BYTES: u32 = 16 * 1024;
/// Time without traffic on a connection after which an HTTP/2 ping checks whether the collector lives.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// Pause of the streams' thread before it waits, so that it handles several messages at once. States that are half a
/// second apart can wait so long, and waking the thread for each of ten thousand messages a second would take most of
/// its time.
const BATCH_PAUSE: Duration = Duration::from_millis(3);
/// Time between two computations of the intervals.
const PACING_REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// Pause after a failed accept, which mostly means that the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves streams on `listener`, without TLS, until the future is dropped.
///
/// # Errors
/// The error of the system if the server can't start or its thread fails.
pub async fn serve(listener: TcpListener, streams: Arc<Streams>) -> io::Result<()> {
    serve_with(listener, None, streams).await
}

/// Serves streams on `listener` until the future is dropped.
///
/// Streams have a thread of their own: ten thousand small messages a second are cheapest without waking other
/// threads, and must not delay the service's requests.
///
/// # Errors
/// The error of the system if the server can't start or its thread fails.
pub async fn serve_with(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    streams: Arc<Streams>,
) -> io::Result<()> {
    let listener = listener.into_std()?;
    let (mut result, ended) = oneshot::channel();
    std::thread::Builder::new().name("fpga-streams".to_owned()).spawn(move || {
        let pause = || std::thread::sleep(BATCH_PAUSE);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().on_thread_park(pause).build();
        let served = runtime.and_then(|runtime| {
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener)?;
                tokio::select! {
                    () = accept(listener, tls.clone(), Arc::clone(&streams)) => {}
                    () = refresh_intervals(&streams) => {}
                    () = keep_certificate(tls, &streams) => {}
                    () = result.closed() => {}
                }
                Ok(())
            })
        });
        // The receiver is gone if the future was dropped.
        let _ = result.send(served);
    })?;
    ended.await.unwrap_or_else(|_| Err(io::Error::other("the streams' thread failed; the log says why")))
}

async fn refresh_intervals(streams: &Streams) {
    let mut ticks = tokio::time::interval(PACING_REFRESH_INTERVAL);
    loop {
        ticks.tick().await;
        streams.refresh_intervals();
    }
}

/// Reloads the certificate when its files change. Never returns.
async fn keep_certificate(tls: Option<Arc<ServerTls>>, streams: &Streams) {
    let Some(tls) = tls else { return std::future::pending().await };
    streams.receiver.certificate(&Reload::Same, tls.expiry());
    tls.keep(|reload| streams.receiver.certificate(reload, tls.expiry())).await;
}

async fn accept(listener: TcpListener, tls: Option<Arc<ServerTls>>, streams: Arc<Streams>) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let server = NodeStreamServer::new(Service(Arc::clone(&streams)))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // A failure costs latency only.
                let _ = stream.set_nodelay(true);
                let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else {
                    streams.receiver.refused_connection(Refusal::Full);
                    continue;
                };
                let connection = connect(stream, tls.clone(), server.clone(), permit);
                let streams = Arc::clone(&streams);
                tokio::spawn(async move {
                    if let Err(refusal) = connection.await {
                        streams.receiver.refused_connection(refusal);
                    }
                });
            }
            Err(error) => {
                warn!(%error, "Cannot accept a stream's connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn connect(
    stream: TcpStream,
    tls: Option<Arc<ServerTls>>,
    server: NodeStreamServer<Service>,
    _permit: OwnedSemaphorePermit,
) -> Result<(), Refusal> {
    // Boxed, so that each of ten thousand connections needs memory for its current state only, and not for the
    // largest possible one.
    match tls {
        None => Box::pin(speak(stream, NodeScope::Any, server)).await,
        Some(tls) => Box::pin(speak_tls(stream, tls, server)).await,
    }
}

async fn speak_tls(
    stream: TcpStream,
    tls: Arc<ServerTls>,
    server: NodeStreamServer<Service>,
) -> Result<(), Refusal> {
    match Box::pin(tls.accept(stream)).await {
        Ok((stream, names)) => {
            let nodes = if tls.asks_clients() { NodeScope::Named(names.into()) } else { NodeScope::Any };
            Box::pin(speak(stream, nodes, server)).await
        }
        Err(error) => {
            debug!(%error, "A collector could not agree on TLS");
            Err(Refusal::Handshake)
        }
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    nodes: NodeScope,
    server: NodeStreamServer<Service>,
) -> Result<(), Refusal> {
    let connection = Connection::new(nodes);
    let of_requests = connection.clone();
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(of_requests.clone());
        server.clone().call(request)
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES)
        .max_concurrent_streams(MAX_CALLS)
        .max_header_list_size(MAX_HEAD_BYTES)
        .keep_alive_interval(Some(KEEP_ALIVE_INTERVAL))
        .keep_alive_timeout(ANSWER_TIMEOUT)
        .auto_date_header(false);
    let unused = async {
        // A call in progress has timeouts of its own.
        loop {
            tokio::time::sleep(IDLE_TIMEOUT).await;
            if connection.is_unused() {
                break;
            }
        }
    };
    tokio::select! {
        ended = builder.serve_connection(TokioIo::new(stream), service) => {
            // Usually the collector was killed, or its node.
            if let Err(error) = ended {
                debug!(%error, "A stream's connection broke off");
            }
            Ok(())
        }
        () = unused => Err(Refusal::TooSlow),
    }
}
