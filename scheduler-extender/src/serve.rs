//! The HTTP ports with their bounds, and how the process ends. SIGTERM: /readyz fails, and all is still answered for a time
//! (`--shutdown-delay`), so that those who choose among replicas have turned away before the port closes. Then, and at
//! SIGINT at once, the ports close and what is in progress is finished; a further signal, or 10 s, cuts that short.

use crate::ports::metrics::{PortMetrics, PortName};
use axum::Router;
use fpga_net::http::{Limits, Port, Server};
use futures::future::join_all;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

/// Longest time that requests in progress are waited for.
pub const GRACE: Duration = Duration::from_secs(10);

/// kube-scheduler has a handful of connections.
const LIMITS: Limits = Limits {
    connections: 128,
    buffer_bytes: 64 * 1024,
    head: Duration::from_secs(5),
    // kube-scheduler keeps an idle connection for 90 s, and must not find it closed by us when it asks again.
    idle: Duration::from_secs(180),
    drain: GRACE,
};

/// For people, probes and Prometheus.
const OTHERS: Limits = Limits { connections: 32, ..LIMITS };

/// Answers on `listener` until `stop` ends, then finishes what is in progress; cuts it when `cut` ends or after
/// [`GRACE`].
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

/// The same for several ports, each with its routes. Bounds are for each port, so that one can't be shut by another.
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

/// SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// From here on the signals no longer end the process by themselves.
    ///
    /// # Errors
    /// If the handlers can't be installed.
    pub fn install() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next one.
    pub async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }

    /// Waits until the ports are to close: SIGINT comes, or SIGTERM and then `delay` or another signal. `begin` is done
    /// when the first signal has come.
    pub async fn until_ports_close(&mut self, delay: Duration, begin: impl FnOnce()) {
        let first = self.next().await;
        begin();
        if first == SignalKind::terminate() && !delay.is_zero() {
            info!(?delay, "About to end: not ready any more, and still answering");
            tokio::select! {
                () = tokio::time::sleep(delay) => {}
                _ = self.next() => {}
            }
        }
    }
}
