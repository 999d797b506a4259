//! The port, and how the process ends: the first signal drains, the second or 10 s later cuts.

use axum::Router;
use axum::serve::ListenerExt;
use std::future::Future;
use std::io;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

/// Longest time that requests in progress are waited for.
pub const GRACE: Duration = Duration::from_secs(10);

/// Answers on `listener` until `stop` ends, then finishes what is in progress; cuts it when `cut` ends or after
/// [`GRACE`].
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
    cut: impl Future<Output = ()>,
) -> io::Result<()> {
    // An answer is one small write; waiting to fill a packet would cost more than the answer.
    let listener = listener.tap_io(|connection| {
        if let Err(error) = connection.set_nodelay(true) {
            warn!(%error, "Could not set TCP_NODELAY");
        }
    });
    let (stopping, mut stopped) = watch::channel(false);
    let server = axum::serve(listener, router).with_graceful_shutdown(async move {
        stop.await;
        info!("Stopping");
        stopping.send_replace(true);
    });
    let force = async move {
        // An error means that the server has ended, and with it this select.
        let _ = stopped.wait_for(|stopping| *stopping).await;
        tokio::select! {
            () = tokio::time::sleep(GRACE) => {}
            () = cut => {}
        }
    };
    tokio::select! {
        ended = server => ended,
        () = force => {
            warn!("Requests in progress were cut off");
            Ok(())
        }
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
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
