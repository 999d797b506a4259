//! The port of the gateways: gRPC over HTTP/2, with TLS if there is a certificate, and the gRPC health service.

use crate::ext_proc::external_processor_server::{ExternalProcessorServer, SERVICE_NAME};
use crate::picker::Picker;
use crate::service::Service;
use fpga_net::tls::ServerTls;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::Connected;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;
use tracing::{debug, warn};

/// Most connections at once. Some gateways open one for each request.
const MAX_CONNECTIONS: usize = 16 * 1024;
/// Longest headers of a call, in bytes.
const MAX_HEAD_BYTES: u32 = 16 * 1024;
/// Flow control window of a stream, in bytes: what a gateway may send before it is read.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
/// Flow control window of a connection, in bytes.
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// Time without traffic on a connection after which a ping checks whether the gateway lives.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(20);
/// Longest time for the answer to a ping.
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept, which mostly means that the process has no free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Interval at which the health service looks whether the picker is ready.
const HEALTH_INTERVAL: Duration = Duration::from_millis(200);

/// The port of the gateways.
#[derive(Debug)]
pub struct Port {
    /// The bound socket.
    pub listener: TcpListener,
    /// TLS; plain text without it.
    pub tls: Option<Arc<ServerTls>>,
    /// Longest message, in bytes. With buffered bodies a whole body is one message.
    pub max_message_bytes: usize,
}

impl Port {
    /// Serves until `stop` completes, and then the requests in flight until they have ended or the future is dropped.
    ///
    /// # Errors
    /// The server can't be built or fails.
    pub async fn serve(
        self,
        picker: Arc<Picker>,
        service: Service,
        stop: impl Future<Output = ()>,
    ) -> Result<(), tonic::transport::Error> {
        let Self { listener, tls, max_message_bytes } = self;
        let (accepted, connections) = mpsc::channel(64);
        let accepting = tokio::spawn(accept(listener, tls, accepted));
        let stop = async {
            stop.await;
            // The port closes: new connections go to another replica.
            accepting.abort();
        };
        let (reporter, health) = tonic_health::server::health_reporter();
        let processor = ExternalProcessorServer::new(service)
            .max_decoding_message_size(max_message_bytes)
            .max_encoding_message_size(usize::MAX);
        let server = Server::builder()
            .tcp_nodelay(true)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            // The service has a limit for all connections together.
            .max_concurrent_streams(u32::MAX >> 1)
            .http2_max_header_list_size(MAX_HEAD_BYTES)
            .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
            .add_service(health)
            .add_service(processor)
            .serve_with_incoming_shutdown(ReceiverStream::new(connections), stop);
        tokio::select! {
            served = server => served,
            () = report_health(&picker, reporter) => Ok(()),
        }
    }
}

/// Tells the health service whether the picker is ready. Never returns.
async fn report_health(picker: &Picker, reporter: HealthReporter) {
    reporter.set_service_status("liveness", ServingStatus::Serving).await;
    let mut known = None;
    loop {
        let ready = picker.is_ready();
        if known.replace(ready) != Some(ready) {
            let status = if ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            for service in ["", "readiness", SERVICE_NAME] {
                reporter.set_service_status(service, status).await;
            }
        }
        tokio::time::sleep(HEALTH_INTERVAL).await;
    }
}

/// Accepts connections and does their TLS handshakes, many at once.
async fn accept(
    listener: TcpListener,
    tls: Option<Arc<ServerTls>>,
    accepted: mpsc::Sender<io::Result<Connection>>,
) {
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                warn!(%error, "Cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // A failure costs latency only.
        let _ = stream.set_nodelay(true);
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let (tls, accepted) = (tls.clone(), accepted.clone());
        tokio::spawn(async move {
            let io: Box<dyn Io> = match tls {
                None => Box::new(stream),
                Some(tls) => match tls.accept(stream).await {
                    Ok((stream, _)) => Box::new(stream),
                    Err(error) => return debug!(%error, "A gateway could not agree on TLS"),
                },
            };
            // The receiver is gone if the server has ended.
            let _ = accepted.send(Ok(Connection { io, _permit: permit })).await;
        });
    }
}

trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection of a gateway.
struct Connection {
    io: Box<dyn Io>,
    _permit: OwnedSemaphorePermit,
}

impl Connected for Connection {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }
}
