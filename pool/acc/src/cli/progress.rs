//! Progress on the standard error.

use crate::{Status, Where};
use clap::ValueEnum;
use std::io::{IsTerminal as _, Write as _};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Interval at which the status is looked at.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Time for which a job waits before the reason is told.
const QUIET: Duration = Duration::from_millis(500);

/// When progress is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Show {
    /// If the standard error is a terminal.
    Auto,
    /// Always; without a terminal one line for each change.
    Always,
    /// Never.
    Never,
}

/// Shows the status of a job until it is dropped.
pub(super) struct Progress {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    pub(super) fn start(show: Show, status: watch::Receiver<Status>) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        if show == Show::Never || (show == Show::Auto && !is_terminal) {
            return Self { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            let (since, mut shown) = (Instant::now(), String::new());
            loop {
                let is_over = stopped.recv_timeout(LOOK_INTERVAL) != Err(RecvTimeoutError::Timeout);
                let status = status.borrow().clone();
                let is_short_wait = matches!(status.at, Where::Waiting(_)) && since.elapsed() < QUIET;
                let text = match is_terminal {
                    true => format!("\r\x1b[Kfpga-acc: {status}"),
                    false => format!("fpga-acc: {}\n", without_bytes(&status)),
                };
                if text != shown && (!is_short_wait || is_over) {
                    eprint!("{text}");
                    shown = text;
                }
                if is_over {
                    break;
                }
            }
            if is_terminal && !shown.is_empty() {
                eprintln!();
            }
            let _ = std::io::stderr().flush();
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

/// Where the job is. Bytes are told at the end only, so that a log gets few lines.
fn without_bytes(status: &Status) -> String {
    match status.at {
        Where::Running => "running".to_owned(),
        Where::OnProcessor => "running on the processor".to_owned(),
        _ => status.to_string(),
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was told where it happened.
            let _ = thread.join();
        }
    }
}
