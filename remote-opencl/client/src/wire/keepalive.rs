//! Detection of a connection that silently stopped working. HTTP/2 pings find a manager that no longer answers, or
//! a hop on the way that no longer forwards; TCP keepalive finds a dead machine within half a minute.
//!
//! Only for TCP. The default timeout is long, since a manager answers nothing while its runtime compiles inside a
//! launch.

use nix::sys::socket::{setsockopt, sockopt};
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

/// Environment variable with the timeout in ms; 0 disables it.
pub(crate) const KEEPALIVE_VARIABLE: &str = "FPGA_KEEPALIVE_MS";

/// Default timeout. Longer than the compilation in any known launch.
const DEFAULT: Duration = Duration::from_secs(600);

/// Greatest time without a message after which HTTP/2 pings the manager.
const PING_AFTER: Duration = Duration::from_secs(30);

/// Seconds without a byte after which the kernel probes the other end.
const KERNEL_IDLE_S: u32 = 15;
/// Seconds between the kernel's probes.
const KERNEL_INTERVAL_S: u32 = 5;

/// The time for which a manager may be silent; zero means forever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keepalive {
    timeout: Duration,
}

impl Keepalive {
    pub(crate) const fn within(timeout: Duration) -> Self {
        Self { timeout }
    }

    /// The timeout in [`KEEPALIVE_VARIABLE`], or the default.
    pub(crate) fn from_environment() -> Self {
        match std::env::var(KEEPALIVE_VARIABLE) {
            Err(_) => Self::within(DEFAULT),
            Ok(text) => text.parse().map(|ms| Self::within(Duration::from_millis(ms))).unwrap_or_else(|_| {
                tracing::warn!(
                    text,
                    "{KEEPALIVE_VARIABLE} is no number of ms, such as 600000, which is taken"
                );
                Self::within(DEFAULT)
            }),
        }
    }

    /// Enables HTTP/2 pings, also while nothing is outstanding, so that an idle program learns of a lost manager
    /// before it needs the manager.
    pub(crate) fn configure(self, endpoint: Endpoint) -> Endpoint {
        if self.timeout.is_zero() {
            return endpoint;
        }
        let ping_after = (self.timeout / 2).min(PING_AFTER);
        endpoint
            .http2_keep_alive_interval(ping_after)
            .keep_alive_timeout(self.timeout - ping_after)
            .keep_alive_while_idle(true)
    }
}

/// Makes the kernel end a connection whose other end is silent (a node that lost power sends no FIN): after
/// [`KERNEL_IDLE_S`] + 3 × [`KERNEL_INTERVAL_S`] seconds, or 30 s with unacknowledged data.
pub(crate) fn notice_silent_death(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KERNEL_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KERNEL_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &3)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &30_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper_util::rt::TokioIo;
    use std::io;
    use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
    use tokio::time::{Instant, timeout};
    use tokio_stream::StreamExt as _;
    use tonic::body::Body;
    use tonic::codegen::http::Request;
    use tonic::service::Routes;
    use tonic::transport::{Channel, Server};
    use tower::ServiceExt as _;

    const TIMEOUT: Duration = Duration::from_secs(600);

    /// A connection with a keepalive, and its other end.
    async fn connect() -> (Channel, DuplexStream) {
        let (ours, others) = duplex(1 << 16);
        let mut socket = Some(TokioIo::new(ours));
        let connector = tower::service_fn(move |_| {
            let socket = socket.take().ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected));
            async move { socket }
        });
        let endpoint = Keepalive::within(TIMEOUT).configure(Endpoint::from_static("http://device-manager"));
        (endpoint.connect_with_connector(connector).await.unwrap(), others)
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_ends_when_its_other_end_was_silent_for_the_timeout() {
        let (_channel, mut silent) = connect().await;
        let begin = Instant::now();
        timeout(2 * TIMEOUT, silent.read_to_end(&mut Vec::new())).await.unwrap().unwrap();
        let lasted = begin.elapsed();
        assert!((TIMEOUT..TIMEOUT + Duration::from_secs(1)).contains(&lasted), "{lasted:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_whose_other_end_answers_lasts() {
        let (channel, answers) = connect().await;
        let incoming = tokio_stream::once(Ok::<_, io::Error>(answers)).chain(tokio_stream::pending());
        tokio::spawn(Server::builder().add_routes(Routes::default()).serve_with_incoming(incoming));
        tokio::time::sleep(TIMEOUT * 100).await;
        // There can be no second connection.
        channel.oneshot(Request::new(Body::empty())).await.unwrap();
    }
}
