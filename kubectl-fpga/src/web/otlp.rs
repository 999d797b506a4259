//! The port that takes spans by OTLP over HTTP, in JSON. They are shown, and go nowhere else.

use super::shared::Shared;
use axum::extract::{DefaultBodyLimit, State};
use axum::routing::post;
use axum::{Json, Router};
use fpga_net::http::{Limits, Port, Server};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Longest request, in bytes: far more than 512 spans of our programs.
const MAX_REQUEST_BYTES: usize = 2 << 20;
/// Bounds of the port.
const LIMITS: Limits = Limits {
    connections: 16,
    buffer_bytes: 16 * 1024,
    head: Duration::from_secs(5),
    idle: Duration::from_secs(60),
    drain: Duration::from_millis(200),
};

/// An address that only this machine reaches.
///
/// # Errors
/// The address is another one; the text says what to write.
pub fn loopback(text: &str) -> Result<SocketAddr, String> {
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        _ => Err("write an address of this machine alone, for example 127.0.0.1:4318".to_owned()),
    }
}

/// Takes spans until the future is dropped.
pub async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let router = Router::new().route("/v1/traces", post(take)).with_state(shared);
    let router = router.layer(DefaultBodyLimit::max(MAX_REQUEST_BYTES));
    // The receiver of a signal that never comes.
    let (_stop, stop) = watch::channel(false);
    Server::new(LIMITS, |_| {}).serve(Port::Tcp(listener, None), router, stop).await;
}

/// Takes a request with spans. `Json` demands its content type, which a browser lets no foreign page send.
async fn take(State(shared): State<Arc<Shared>>, Json(request): Json<Value>) -> Json<Value> {
    shared.change(|model, now_ms| model.spans(&request, now_ms));
    Json(json!({}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_this_machine_are_taken() {
        for own in ["127.0.0.1:4318", "127.3.0.1:1", "[::1]:4318"] {
            assert_eq!(loopback(own).map(|address| address.to_string()), Ok(own.to_owned()));
        }
        for other in ["0.0.0.0:4318", "10.0.0.1:4318", "[::]:4318", "localhost", "4318", ""] {
            assert!(loopback(other).is_err(), "{other}");
        }
    }
}
