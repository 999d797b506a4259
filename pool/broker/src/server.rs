//! The port of managers and clients: gRPC over HTTP/2, with TLS if there is a certificate.

use crate::connections::{Connection, Connections};
use crate::looks::Look;
use crate::service::Service;
use fpga_net::tls::ServerTls;
use fpga_pool_api::limits::{
    KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, MAX_CLIENT_MESSAGE_BYTES, MAX_MANAGER_MESSAGE_BYTES,
    MAX_VIEW_BYTES,
};
use fpga_pool_api::v1::broker_server::BrokerServer;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::body::Body;
use tonic::codegen::Service as _;
use tracing::{debug, warn};

/// Most streams and calls of a connection at once; a process needs one, and another one to look.
const MAX_STREAMS_OF_CONNECTION: u32 = 16;
/// Longest headers of a call, in bytes.
const MAX_HEAD_BYTES: u32 = 16 * 1024;
/// Flow control window of a stream, in bytes: what a peer may send that the broker has not read. Longer messages come in
/// parts.
const STREAM_WINDOW_BYTES: u32 = 16 * 1024;
/// Flow control window of a connection, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 64 * 1024;
/// Bytes of a stream that wait to be sent, beside one piece of up to 36 KB; more wait as the owner's messages.
const SEND_BUFFER_BYTES: usize = 4 * 1024;
/// Longest message that is read, whoever sends it.
const MAX_MESSAGE_BYTES: usize = if MAX_MANAGER_MESSAGE_BYTES > MAX_CLIENT_MESSAGE_BYTES {
    MAX_MANAGER_MESSAGE_BYTES
} else {
    MAX_CLIENT_MESSAGE_BYTES
};
/// Time that streams have to end.
const DRAIN: Duration = Duration::from_secs(2);
/// Pause after a failed accept, which mostly means that the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Serves until `stop` is true. The owner ends the streams.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    connections: Connections,
    service: Service,
    mut stop: watch::Receiver<bool>,
) {
    let broker = BrokerServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_VIEW_BYTES);
    let mut served = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    // If each connection has a stream the new one ends, and its peer tries again.
                    let Some(connection) = connections.open(peer.ip()) else { continue };
                    served.spawn(connect(stream, tls.clone(), connection, broker.clone(), stop.clone()));
                }
                Err(error) => {
                    warn!(%error, "Cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(_) = served.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    drop(listener);
    // What has not ended by then is cut.
    let _ = timeout(DRAIN, async { while served.join_next().await.is_some() {} }).await;
}

async fn connect(
    stream: TcpStream,
    tls: Option<Arc<ServerTls>>,
    connection: Connection,
    broker: BrokerServer<Service>,
    stop: watch::Receiver<bool>,
) {
    // A failure costs latency only.
    let _ = stream.set_nodelay(true);
    // Boxed, so that each of many connections needs memory for its current state only.
    let Some(tls) = tls else { return Box::pin(speak(stream, connection, broker, stop)).await };
    let accepted = tokio::select! {
        accepted = Box::pin(tls.accept(stream)) => accepted,
        () = connection.is_to_close() => return,
    };
    match accepted {
        Ok((stream, _)) => Box::pin(speak(stream, connection, broker, stop)).await,
        Err(error) => debug!(%error, "A peer could not agree on TLS"),
    }
}

async fn speak(
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    connection: Connection,
    broker: BrokerServer<Service>,
    mut stop: watch::Receiver<bool>,
) {
    let of_request = connection.of_request();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(of_request.clone());
        let answer = broker.clone().call(request);
        async move { answer.await.map(until_read) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .max_concurrent_streams(MAX_STREAMS_OF_CONNECTION)
        .max_header_list_size(MAX_HEAD_BYTES)
        .keep_alive_interval(Some(KEEP_ALIVE_INTERVAL))
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .auto_date_header(false);
    let mut http = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = &mut http => ended,
        () = connection.is_to_close() => return debug!("A connection without a stream is closed"),
        () = stopped(&mut stop) => {
            http.as_mut().graceful_shutdown();
            http.await
        }
    };
    if let Err(error) = ended {
        debug!(%error, "A connection broke off");
    }
}

/// Lets the look of an answer, if it has one, last as long as the answer is being sent.
fn until_read(mut answer: Response<Body>) -> Response<Body> {
    match answer.extensions_mut().remove::<Arc<Look>>() {
        None => answer,
        Some(look) => answer.map(|body| {
            Body::new(body.map_frame(move |frame| {
                let _lasts = &look;
                frame
            }))
        }),
    }
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that the sender is gone, which is an end as well.
    let _ = stop.wait_for(|stop| *stop).await;
}
