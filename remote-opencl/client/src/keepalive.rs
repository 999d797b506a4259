//! How a manager is found to have gone without a word, when something on the way has stopped to forward: HTTP/2 asks it.
//! Machines that have gone the kernel finds, in half a minute.
//!
//! Only over TCP, and with long patience: a manager answers nothing while its runtime compiles inside a launch.

use nix::sys::socket::{setsockopt, sockopt};
use std::time::Duration;
use tokio::net::TcpStream;
use tonic::transport::Endpoint;

/// Environment variable with the patience in ms; 0: for ever.
pub const KEEPALIVE_VARIABLE: &str = "FPGA_KEEPALIVE_MS";

/// Longer than any launch is known to compile.
const DEFAULT: Duration = Duration::from_secs(600);

/// How soon a silent manager is asked, at most.
const ASKED_AFTER: Duration = Duration::from_secs(30);

/// Seconds without a byte after which the kernel asks the other end.
const KERNEL_IDLE_S: u32 = 15;
/// Seconds between its questions.
const KERNEL_INTERVAL_S: u32 = 5;

/// How long a manager may be silent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keepalive {
    patience: Duration,
}

impl Keepalive {
    pub(crate) const fn within(patience: Duration) -> Self {
        Self { patience }
    }

    /// As the environment wants it.
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

    /// Has HTTP/2 ask, whether or not something is outstanding: an idle program shall know before it needs the manager.
    pub(crate) fn ask(self, endpoint: Endpoint) -> Endpoint {
        if self.patience.is_zero() {
            return endpoint;
        }
        let asked_after = (self.patience / 2).min(ASKED_AFTER);
        endpoint
            .http2_keep_alive_interval(asked_after)
            .keep_alive_timeout(self.patience - asked_after)
            .keep_alive_while_idle(true)
    }
}

/// Has the kernel end a connection whose other end fell silent (a node without power says no goodbye), after
/// [`KERNEL_IDLE_S`] + 3 × [`KERNEL_INTERVAL_S`], or half a minute with data on its way.
pub(crate) fn notice_silent_death(stream: &TcpStream) -> nix::Result<()> {
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &KERNEL_IDLE_S)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &KERNEL_INTERVAL_S)?;
    setsockopt(stream, sockopt::TcpKeepCount, &3)?;
    setsockopt(stream, sockopt::TcpUserTimeout, &30_000)
}
