//! The page's server: the embedded files, the stream of changes, and answers that a view asks for.

use super::ask::Ask;
use super::guard::{Guard, HEADERS};
use super::page;
use super::shared::Shared;
use super::stream;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use fpga_net::http::{Limits, Port, Server};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};

/// Streams at the same time: tabs of one person.
const MAX_STREAMS: usize = 16;
/// Bounds of the server.
const LIMITS: Limits = Limits {
    connections: 64,
    buffer_bytes: 16 * 1024,
    head: Duration::from_secs(5),
    idle: Duration::from_secs(60),
    drain: Duration::from_millis(200),
};

/// A page that is served.
#[derive(Clone)]
pub struct Site {
    guard: Guard,
    shared: Arc<Shared>,
    ask: Arc<Ask>,
    streams: Arc<Semaphore>,
}

impl Site {
    /// A page that shows the model of `shared`.
    #[must_use]
    pub fn new(guard: Guard, shared: Arc<Shared>, ask: Ask) -> Self {
        Self { guard, shared, ask: Arc::new(ask), streams: Arc::new(Semaphore::new(MAX_STREAMS)) }
    }

    /// Serves until the future is dropped.
    pub async fn serve(self, listener: TcpListener) {
        // The receiver of a signal that never comes.
        let (_stop, stop) = watch::channel(false);
        Server::new(LIMITS, |_| {}).serve(Port::Tcp(listener, None), self.router(), stop).await;
    }

    /// The routes. All of them are behind the guard.
    pub fn router(self) -> Router {
        Router::new().fallback(answer).with_state(self)
    }
}

async fn answer(State(site): State<Site>, request: Request) -> Response {
    let (parts, _) = request.into_parts();
    let mut response = match site.guard.check(&parts.method, &parts.headers, parts.uri.path()) {
        Ok("stream") => match Arc::clone(&site.streams).try_acquire_owned() {
            Ok(place) => stream::respond(site.shared, place),
            Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "too many pages are open\n").into_response(),
        },
        Ok("ask") => site.ask.answer(&parts.uri).await,
        Ok(path) => match page::file(path) {
            Some(file) => ([(header::CONTENT_TYPE, file.kind)], file.text).into_response(),
            None => (StatusCode::NOT_FOUND, "there is no such file\n").into_response(),
        },
        Err(refused) => (StatusCode::FORBIDDEN, format!("{refused}\n")).into_response(),
    };
    response.headers_mut().extend(HEADERS);
    response
}
