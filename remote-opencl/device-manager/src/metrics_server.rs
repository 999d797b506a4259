//! The HTTP server of `/metrics`, `/healthz` and `/readyz`, on its own thread.

mod address;

pub use address::MetricsAddress;

use address::MetricsListener;
use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use fpga_board::health::Fault;
use fpga_net::http::open_metrics;
use fpga_session::health::Health;
use fpga_session::shutdown::Shutdown;
use prometheus_client::registry::Registry;
use std::io;
use std::sync::Arc;
use std::thread;
use tracing::warn;

/// Serves `registry` on `address` until the process ends. Returns the bound address. `/readyz` fails while the
/// manager drains and while the device is unhealthy. `/healthz` fails while the runtime is stuck, since only a new
/// process helps then.
///
/// # Errors
/// The system's error if the address can't be bound or the thread can't be started.
pub fn start(
    address: &MetricsAddress,
    registry: Registry,
    shutdown: Shutdown,
    health: Health,
) -> io::Result<MetricsAddress> {
    serve(address, app(registry, shutdown, health))
}

/// Serves `app` on `address` until the process ends, on a thread of its own. Returns the bound address.
///
/// # Errors
/// The system's error if the address can't be bound or the thread can't be started.
pub fn serve(address: &MetricsAddress, app: Router) -> io::Result<MetricsAddress> {
    let (listener, bound) = address.bind()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    thread::Builder::new().name("metrics".to_owned()).spawn(move || {
        let served = runtime.block_on(async move {
            match listener {
                MetricsListener::Tcp(listener) => {
                    axum::serve(tokio::net::TcpListener::from_std(listener)?, app).await
                }
                MetricsListener::Unix(listener) => {
                    axum::serve(tokio::net::UnixListener::from_std(listener)?, app).await
                }
            }
        });
        if let Err(error) = served {
            warn!(%error, "Metrics are not served any more");
        }
    })?;
    Ok(bound)
}

/// The routes.
pub fn app(registry: Registry, shutdown: Shutdown, health: Health) -> Router {
    let of_liveness = health.clone();
    let healthz = || async move { alive(&of_liveness) };
    let readyz = || async move { ready(&shutdown, &health) };
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(registry))
}

fn alive(health: &Health) -> (StatusCode, String) {
    match health.fault() {
        Some(fault @ (Fault::Stuck | Fault::Abandoned)) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{fault}\n"))
        }
        _ => (StatusCode::OK, "ok\n".to_owned()),
    }
}

fn ready(shutdown: &Shutdown, health: &Health) -> (StatusCode, String) {
    if shutdown.is_draining() {
        let sessions = shutdown.sessions();
        let are_left = if sessions == 1 { "session is left" } else { "sessions are left" };
        return (StatusCode::SERVICE_UNAVAILABLE, format!("draining: {sessions} {are_left}\n"));
    }
    match health.fault() {
        Some(fault) => (StatusCode::SERVICE_UNAVAILABLE, format!("unhealthy: {fault}\n")),
        None => (StatusCode::OK, "ok\n".to_owned()),
    }
}

async fn metrics(State(registry): State<Arc<Registry>>) -> Response {
    open_metrics(&registry)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::{Body, to_bytes};
    use axum::http::Request;
    use fpga_session::metrics::{DataPath, Direction, Metrics};
    use tower::ServiceExt as _;

    fn healthy() -> Health {
        Health::new(std::time::Duration::MAX)
    }

    #[tokio::test]
    async fn what_was_counted_is_shown() {
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry, "dm0");
        metrics.sessions_opened.inc();
        metrics.count_bytes(Direction::Received, DataPath::Messages, 7);
        let second = std::time::Duration::from_secs(1);
        let (session, tenant) = (fpga_board::slots::SessionId(1), fpga_board::dispatch::Tenant::new("shop"));
        let _counted = metrics.session_of(session, &tenant, "sobel");
        metrics.task_of(session, &tenant, second, second);
        let request = Request::get("/metrics").body(Body::empty()).unwrap();
        let response = app(registry, Shutdown::new(), healthy()).oneshot(request).await.unwrap();
        let text = to_bytes(response.into_body(), 1 << 20).await.unwrap();
        let text = String::from_utf8_lossy(&text);
        for line in [
            "fpga_device_manager_sessions_opened_total 1",
            "fpga_device_manager_data_bytes_total{direction=\"Received\",path=\"Messages\"} 7",
            "fpga_task_latency_sum{device=\"dm0\"} 1.0",
            "fpga_device_manager_tenant_device_seconds_total{tenant=\"shop\"} 1.0",
            "fpga_device_manager_workload_queue_seconds_total{tenant=\"shop\",workload=\"sobel\"} 1.0",
            "fpga_device_manager_task_seconds_count 0",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }

    #[tokio::test]
    async fn a_manager_that_drains_is_healthy_and_not_ready() {
        let shutdown = Shutdown::new();
        let app = app(Registry::default(), shutdown.clone(), healthy());
        let status = async |path: &str| {
            let request = Request::get(path).body(Body::empty()).unwrap();
            app.clone().oneshot(request).await.unwrap().status()
        };
        assert_eq!(status("/readyz").await, StatusCode::OK);
        shutdown.drain();
        assert_eq!(status("/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(status("/healthz").await, StatusCode::OK);
    }
}
