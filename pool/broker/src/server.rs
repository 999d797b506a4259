//! The port of managers and clients: gRPC over HTTP/2, with TLS if there is a certificate.

use crate::service::Service;
use fpga_net::grpc;
use fpga_net::tls::ServerTls;
use fpga_pool_api::limits::{
    KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, MAX_CLIENT_MESSAGE_BYTES, MAX_MANAGER_MESSAGE_BYTES,
    MAX_VIEW_BYTES,
};
use fpga_pool_api::v1::broker_server::BrokerServer;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tonic::transport::Server;

/// Most connections at once: a manager for each board and a client for each process of the largest cluster.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Most streams and calls of a connection at once; a process needs one, and another one to look.
const MAX_STREAMS_OF_CONNECTION: u32 = 16;
/// Longest headers of a call, in bytes.
const MAX_HEAD_BYTES: u32 = 16 * 1024;
/// Flow control window of a stream, in bytes: the longest message fits.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Flow control window of a connection, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 256 * 1024;
/// Longest message that is read, whoever sends it.
const MAX_MESSAGE_BYTES: usize = if MAX_MANAGER_MESSAGE_BYTES > MAX_CLIENT_MESSAGE_BYTES {
    MAX_MANAGER_MESSAGE_BYTES
} else {
    MAX_CLIENT_MESSAGE_BYTES
};
/// Time that streams have to end.
const DRAIN: Duration = Duration::from_secs(2);

/// Serves until `stop` is true. The owner ends the streams.
///
/// # Errors
/// The server can't be built or fails.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    service: Service,
    mut stop: watch::Receiver<bool>,
) -> Result<(), tonic::transport::Error> {
    let (accepting, connections) = grpc::accept(listener, tls, MAX_CONNECTIONS);
    let mut ends = stop.clone();
    let stopped = async move {
        // An error means that the sender is gone, which is an end as well.
        let _ = stop.wait_for(|stop| *stop).await;
        drop(accepting);
    };
    let broker = BrokerServer::new(service)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_VIEW_BYTES);
    let served = Server::builder()
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .max_concurrent_streams(MAX_STREAMS_OF_CONNECTION)
        .http2_max_header_list_size(MAX_HEAD_BYTES)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .add_service(broker)
        .serve_with_incoming_shutdown(connections, stopped);
    let cut = async {
        let _ = ends.wait_for(|stop| *stop).await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        served = served => served,
        () = cut => Ok(()),
    }
}
