//! Ctrl-C and SIGTERM.

use super::INTERRUPTED;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

/// Time for the program to end by itself after the signal. A read of the standard input is not broken off.
const GRACE: Duration = Duration::from_secs(1);

/// A future that is ready when the program is asked to end. A second later the program ends in any case.
pub(super) fn interrupted() -> anyhow::Result<oneshot::Receiver<()>> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (sender, receiver) = oneshot::channel();
    let (mut interrupt, mut terminate) = {
        let _inside = runtime.enter();
        (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?)
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        runtime.block_on(async {
            tokio::select! { _ = interrupt.recv() => {}, _ = terminate.recv() => {} }
            // The program may have ended meanwhile.
            let _ = sender.send(());
            tokio::time::sleep(GRACE).await;
            std::process::exit(INTERRUPTED.into());
        });
    })?;
    Ok(receiver)
}
