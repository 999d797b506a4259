//! The HTTP ports with their limits, and the end of the process. After SIGTERM /readyz fails and requests are still
//! answered for `--shutdown-delay`, so that clients can turn to another replica. Then, or at SIGINT immediately, the
//! ports close and requests in progress are finished, until a further signal or 10 s cut them off.

use super::metrics::{PortMetrics, PortName};
use axum::Router;
use fpga_net::http::{Limits, Port, Server};
use futures::future::join_all;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tracing::{info, warn};

/// Longest time for requests in progress after the ports have closed.
pub const GRACE: Duration = Duration::from_secs(10);

/// Limits of the main port; kube-scheduler has a handful of connections.
const LIMITS: Limits = Limits {
    connections: 128,
    buffer_bytes: 64 * 1024,
    head: Duration::from_secs(5),
    // Longer than the 90 s for which kube-scheduler keeps an idle connection: it must not reuse one that is closed
    // here.
    idle: Duration::from_secs(180),
    drain: GRACE,
};

/// Limits of the ports for people, probes and Prometheus.
const OTHERS: Limits = Limits { connections: 32, ..LIMITS };

/// Serves `listener` until `stop` completes, then finishes the requests in progress. Cuts them off when `cut`
/// completes or after [`GRACE`].
///
/// # Errors
/// None so far.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()>,
    cut: impl Future<Output = ()>,
) -> io::Result<()> {
    let port = (PortName::Http, Port::Tcp(listener, None), router);
    serve_ports(vec![port], &PortMetrics::default(), stop, cut).await;
    Ok(())
}

/// Like [`serve`] for several ports, each with its routes. Each port has limits of its own, so that clients of one
/// can't block another.
pub async fn serve_ports(
    ports: Vec<(PortName, Port, Router)>,
    metrics: &PortMetrics,
    stop: impl Future<Output = ()>,
    cut: impl Future<Output = ()>,
) {
    let (stopping, stopped) = watch::channel(false);
    let servers = ports.into_iter().map(|(name, port, router)| {
        let (metrics, stopped) = (metrics.clone(), stopped.clone());
        let limits = if name == PortName::Http { LIMITS } else { OTHERS };
        let server = Server::new(limits, move |refusal| metrics.refused(name, refusal));
        async move { server.serve(port, router, stopped).await }
    });
    let end = async {
        stop.await;
        info!("Stopping");
        stopping.send_replace(true);
        cut.await;
    };
    tokio::select! {
        _ = join_all(servers) => {}
        () = end => warn!("Requests in progress were cut off"),
    }
}
