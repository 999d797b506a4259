//! The kubelet's two APIs on unix sockets, compiled from `proto/`, and the connection to such a socket.

use hyper_util::rt::TokioIo;
use std::path::Path;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// The API of device plugins: registration with the kubelet, and the service that the kubelet calls.
#[allow(
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated; the .proto file has the comments"
)]
pub(crate) mod device_plugin {
    tonic::include_proto!("v1beta1");

    /// The version in a registration.
    pub(crate) const VERSION: &str = "v1beta1";
    /// Health of an instance that pods can have.
    pub(crate) const HEALTHY: &str = "Healthy";
    /// Health of an instance that no pod gets.
    pub(crate) const UNHEALTHY: &str = "Unhealthy";
}

/// The API that tells which container has which instances.
#[allow(
    unused_qualifications,
    clippy::all,
    clippy::pedantic,
    reason = "generated; the .proto file has the comments"
)]
pub(crate) mod pod_resources {
    tonic::include_proto!("v1");
}

/// Connects to a gRPC server on a unix socket.
///
/// # Errors
/// The error of the connection, if no process listens on the socket.
pub(crate) async fn connect(socket: &Path) -> Result<Channel, tonic::transport::Error> {
    let socket = socket.to_owned();
    let connector = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The connector takes no notice of the address, which HTTP/2 needs all the same.
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await
}
