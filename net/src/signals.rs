//! The signals that end a service.

use std::io;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::info;

/// The handlers of SIGTERM and SIGINT.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Installs the handlers. From then on the signals don't end the process by themselves.
    ///
    /// # Errors
    /// The handlers can't be installed.
    pub fn install() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) -> SignalKind {
        tokio::select! {
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.interrupt.recv() => SignalKind::interrupt(),
        }
    }

    /// Waits until the ports are to close: after SIGINT immediately, after SIGTERM when `delay` has passed or another
    /// signal comes. Calls `begin` when the first signal has come.
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
