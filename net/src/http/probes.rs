//! The port for probes and metrics, which anybody may read.

use super::{Limits, Port, Server};
use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::debug;

/// Serves routes that change nothing over plain HTTP, within [`Limits::PROBES`], until `stop` is true.
pub async fn serve_probes(listener: TcpListener, router: Router, stop: watch::Receiver<bool>) {
    let server = Server::new(Limits::PROBES, |refusal| {
        debug!(refusal = refusal.name(), "A connection for probes was refused");
    });
    server.serve(Port::Tcp(listener, None), router, stop).await;
}
