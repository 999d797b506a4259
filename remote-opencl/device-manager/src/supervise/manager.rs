//! Keeps the manager of one board running: starts it, looks after it, and starts it anew when it has ended.

use super::plan::Board;
use super::probe::{Answer, get};
use super::status::{State, Statuses};
use crate::process::{Inherited, Terminal, bind_to_parent};
use fpga_net::backoff::Backoff;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::ffi::OsString;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

/// Pauses before a manager is started anew.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A manager that has run for as long has started well: the pauses begin anew.
const LONG_RUN: Duration = Duration::from_secs(60);
/// Interval of the tries while a folder is missing that the node plugin makes.
const FOLDER_INTERVAL: Duration = Duration::from_millis(500);
/// Interval of the looks at a manager that is ready, and at another one.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
const FIRST_LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Longest time without a good answer at `/healthz` before a manager is ended and started anew; at its start, when a
/// vendor's runtime may have much to do.
const DEAD_TIMEOUT: Duration = Duration::from_secs(60);
const START_TIMEOUT: Duration = Duration::from_secs(300);
/// Time that a manager has to end, besides the time for its drain.
const END_TIMEOUT: Duration = Duration::from_secs(15);
/// Variables by which a manager would accept more than tokens, or serve elsewhere.
const FOREIGN_VARIABLES: [&str; 5] =
    ["FPGA_LISTEN", "FPGA_TOKENS_OPTIONAL", "FPGA_READY_FILE", "FPGA_DEVICE", "FPGA_INSECURE_TCP"];

/// What a board's manager is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// The manager is kept running.
    Serve,
    /// The manager ends when its sessions have, or after the time for a drain.
    Drain,
    /// As [`Self::Drain`]; then the board is forgotten.
    Vanish,
    /// The manager ends at once, with its sessions.
    EndAtOnce,
}

/// What all managers of the node have in common.
#[derive(Debug)]
pub(super) struct Common {
    /// The node's folder: `managers/BOARD/dm.sock`, `tokens/BOARD`.
    pub(super) run: PathBuf,
    /// Folder of the managers' sockets for metrics.
    pub(super) private: PathBuf,
    /// The runtime, as a flag.
    pub(super) runtime: String,
    pub(super) drain_timeout: Duration,
    /// Further arguments of `serve`.
    pub(super) arguments: Vec<OsString>,
    pub(super) statuses: Statuses,
}

/// Why a manager can't be started.
#[derive(Debug, thiserror::Error)]
enum StartError {
    #[error("{} can't be made ({source}); the node plugin makes the folder above it, with --managers-gid for managers \
             that are not root's", .path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("the manager can't be started: {0}")]
    Spawn(#[source] io::Error),
}

/// Why a manager ends that was not told to.
#[derive(Debug)]
enum Ended {
    /// The phase said that the manager ends.
    Wanted,
    /// The manager has ended by itself, or was ended because it did not answer; with the reason.
    Failed(String),
}

impl Common {
    fn folder(&self, board: &str) -> PathBuf {
        self.run.join("managers").join(board)
    }

    pub(super) fn metrics(&self, board: &str) -> PathBuf {
        self.private.join(format!("{board}.sock"))
    }

    /// The address at which programs reach the board's manager.
    pub(super) fn address(&self, board: &str) -> String {
        format!("unix:{}/dm.sock", self.folder(board).display())
    }
}

/// Keeps the board's manager running until the phase says otherwise, and waits for its end. `limits` has flags of
/// the manager.
pub(super) async fn keep(
    board: Board,
    common: Arc<Common>,
    limits: Vec<(&'static str, String)>,
    mut phase: watch::Receiver<Phase>,
) {
    let statuses = &common.statuses;
    let mut backoff = Backoff::new(FIRST_PAUSE, LONGEST_PAUSE);
    loop {
        if *phase.borrow() != Phase::Serve {
            break;
        }
        let started = Instant::now();
        let reason = match start(&board, &common, &limits) {
            Ok(child) => match look_after(child, &board.name, &common, &mut phase).await {
                Ended::Wanted => break,
                Ended::Failed(reason) => {
                    statuses.restarted(&board.name, &reason);
                    reason
                }
            },
            // The plugin makes the folder of a new board's tokens a moment after it has seen the board.
            Err(error @ StartError::Folder { .. }) => {
                let reason = error.to_string();
                if statuses.set(&board.name, State::Down(reason.clone())) {
                    info!(board = board.name, reason, "The board waits for its folders");
                }
                tokio::select! {
                    () = sleep(FOLDER_INTERVAL) => {}
                    changed = phase.changed() => if changed.is_err() { break },
                }
                continue;
            }
            Err(error) => error.to_string(),
        };
        if started.elapsed() >= LONG_RUN {
            backoff.reset();
        }
        let pause = backoff.pause(0.5..1.0);
        warn!(board = board.name, reason, ?pause, "The board has no manager; it gets one after a pause");
        statuses.set(&board.name, State::Down(reason));
        tokio::select! {
            () = sleep(pause) => {}
            // The supervisor has gone: nobody wants a manager any more.
            changed = phase.changed() => if changed.is_err() { break },
        }
    }
    if *phase.borrow() == Phase::Vanish {
        remove_folder(&board.name, &common);
        statuses.remove(&board.name);
    }
}

/// Removes what a board that has vanished leaves. The tokens are the node plugin's.
fn remove_folder(board: &str, common: &Common) {
    // Where the manager was killed its sockets are left.
    if let Err(error) = std::fs::remove_dir_all(common.folder(board))
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!(%error, board, "The folder of a board that has vanished can't be removed");
    }
}

fn start(board: &Board, common: &Common, limits: &[(&'static str, String)]) -> Result<Child, StartError> {
    let (folder, tokens) = (common.folder(&board.name), common.run.join("tokens").join(&board.name));
    // Programs of every user pass through the manager's folder. Tokens are read by managers only.
    for (path, mode) in [(&folder, 0o755), (&tokens, 0o700)] {
        make_folder(path, mode).map_err(|source| StartError::Folder { path: path.clone(), source })?;
    }
    let mut command = std::process::Command::new("/proc/self/exe");
    for variable in FOREIGN_VARIABLES {
        command.env_remove(variable);
    }
    command.arg("serve").arg("--listen").arg(common.address(&board.name));
    command.arg("--tokens").arg(tokens);
    command.args(["--device-id", &board.name, "--device", &board.device.to_string()]);
    command.args(["--runtime", &common.runtime]);
    command.args(["--drain-timeout", &format!("{}ms", common.drain_timeout.as_millis())]);
    command.arg(format!("--metrics-listen=unix:{}", common.metrics(&board.name).display()));
    command.args(limits.iter().flat_map(|(flag, value)| [*flag, value]));
    command.args(&common.arguments);
    command.stdin(Stdio::null());
    bind_to_parent(&mut command, Inherited::none(), Signal::SIGTERM, Terminal::Detached);
    Command::from(command).kill_on_drop(true).spawn().map_err(StartError::Spawn)
}

fn make_folder(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    if let Some(above) = path.parent().filter(|above| !above.is_dir()) {
        make_folder(above, 0o755)?;
    }
    DirBuilder::new().mode(mode).create(path)
}

/// Waits until the manager has ended. Ends it when the phase says so, and when it does not answer for too long.
async fn look_after(
    mut child: Child,
    board: &str,
    common: &Common,
    phase: &mut watch::Receiver<Phase>,
) -> Ended {
    info!(board, pid = child.id(), "The board's manager starts");
    common.statuses.set(board, State::Starting);
    let mut dead_at = Instant::now() + START_TIMEOUT;
    let mut interval = FIRST_LOOK_INTERVAL;
    let mut has_answered = false;
    loop {
        tokio::select! {
            status = child.wait() => return Ended::Failed(describe(status)),
            _ = phase.changed() => {
                common.statuses.set(board, State::Ending);
                end(&mut child, common.drain_timeout, Some(phase)).await;
                return Ended::Wanted;
            }
            () = sleep(interval) => {}
        }
        let socket = common.metrics(board);
        let (ready, alive) = tokio::join!(get(&socket, "/readyz"), get(&socket, "/healthz"));
        if matches!(alive, Ok(Answer { ok: true, .. })) {
            dead_at = Instant::now() + DEAD_TIMEOUT;
            has_answered = true;
        }
        let state = match ready {
            Ok(Answer { ok: true, .. }) => State::Ready,
            Ok(Answer { text, .. }) => State::Unready(text.trim().to_owned()),
            Err(_) if !has_answered => State::Starting,
            Err(error) => State::Unready(format!("the manager does not answer: {error}")),
        };
        interval = if state == State::Ready { LOOK_INTERVAL } else { FIRST_LOOK_INTERVAL };
        if common.statuses.set(board, state.clone()) {
            match &state {
                State::Ready => info!(board, "The board's manager is ready"),
                State::Starting => {}
                state => warn!(board, %state, "The board's manager is not ready"),
            }
        }
        if Instant::now() >= dead_at {
            warn!(board, "The board's manager is ended: it has not been healthy for too long");
            end(&mut child, Duration::ZERO, None).await;
            return Ended::Failed("ended because it was not healthy".to_owned());
        }
    }
}

/// Has the manager drain, and kills it when its time has passed. A phase that changes meanwhile ends it at once.
async fn end(child: &mut Child, drain: Duration, mut phase: Option<&mut watch::Receiver<Phase>>) {
    let kill_at = Instant::now() + drain.saturating_add(END_TIMEOUT);
    signal(child);
    loop {
        let at_once = async {
            let changed = match phase.as_mut() {
                Some(phase) => phase.changed().await.is_ok(),
                None => false,
            };
            if !changed {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            _ = child.wait() => return,
            () = at_once => signal(child),
            () = tokio::time::sleep_until(kill_at) => break,
        }
    }
    if let Err(error) = child.kill().await {
        warn!(%error, "A manager can't be killed");
    }
}

/// Sends SIGTERM. The first one starts a drain, the second one ends the manager at once.
fn signal(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid {
        // The child has not been waited for, so its id is not reused yet.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

fn describe(status: io::Result<std::process::ExitStatus>) -> String {
    match status {
        Ok(status) => format!("the manager ended: {status}"),
        Err(error) => format!("the manager can't be waited for: {error}"),
    }
}
