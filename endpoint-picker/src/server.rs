//! The port of the gateways: gRPC over HTTP/2, with TLS if there is a certificate, and the gRPC health service.

use crate::ext_proc::external_processor_server::{ExternalProcessorServer, SERVICE_NAME};
use crate::picker::Picker;
use crate::service::Service;
use fpga_net::grpc;
use fpga_net::tls::ServerTls;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::transport::Server;
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

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
        let (accepting, connections) = grpc::accept(listener, tls, MAX_CONNECTIONS);
        let stop = async move {
            stop.await;
            // The port closes: new connections go to another replica.
            drop(accepting);
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
            .serve_with_incoming_shutdown(connections, stop);
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
