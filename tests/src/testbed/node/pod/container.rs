//! A container of a pod: its process, restarts and readiness.

use crate::testbed::node::command::{Surroundings, process_of};
use crate::testbed::node::status::{ContainerView, Ended, StateView};
use crate::testbed::process::{Process, tail_of};
use k8s_openapi::api::core::v1::Container;
use k8s_openapi::jiff::Timestamp;
use nix::sys::signal::Signal;
use std::net::Ipv4Addr;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::info;

/// Limits of the pause before a restart. The kubelet waits 10 s before the second restart and doubles up to 5 min;
/// tests need shorter pauses.
const FIRST_BACKOFF: Duration = Duration::from_millis(200);
const LONGEST_BACKOFF: Duration = Duration::from_secs(10);
/// Timeout of one attempt to connect, and the failures in a row after which a ready container is not ready any more: the
/// kubelet's defaults.
const PROBE_TIME: Duration = Duration::from_secs(1);
const PROBE_FAILURES: u32 = 3;
/// Interval at which a ready container is probed again.
const PROBE_PERIOD: Duration = Duration::from_secs(2);

/// Whether a container that has ended is restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// A container and its current state.
pub(super) struct ContainerRun {
    container: Container,
    policy: RestartPolicy,
    log: PathBuf,
    state: State,
    restarts: i32,
    last: Option<Ended>,
}

enum State {
    /// Not running; started at `due` if that is set.
    Waiting { reason: &'static str, message: String, due: Option<Instant> },
    Running {
        process: Process,
        since: Timestamp,
        ready: bool,
        /// Failed probes in a row.
        failures: u32,
        next_probe: Instant,
    },
    /// Ended, and never restarted.
    Ended(Ended),
}

impl RestartPolicy {
    pub(super) fn from_spec(text: Option<&str>) -> Self {
        match text {
            Some("Never") => Self::Never,
            Some("OnFailure") => Self::OnFailure,
            _ => Self::Always,
        }
    }

    /// The policy for init containers: one that succeeded is never restarted.
    pub(super) fn for_init(self) -> Self {
        if self == Self::Always { Self::OnFailure } else { self }
    }

    fn restarts_after(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

impl ContainerRun {
    pub(super) fn new(container: Container, policy: RestartPolicy, dir: &Path) -> Self {
        let log = dir.join(format!("{}.log", container.name));
        let state =
            State::Waiting { reason: "ContainerCreating", message: String::new(), due: Some(Instant::now()) };
        Self { container, policy, log, state, restarts: 0, last: None }
    }

    /// Checks whether the process has ended, and plans the restart if there is one.
    pub(super) fn notice_end(&mut self) {
        if let State::Running { process, since, .. } = &self.state
            && let Some(status) = process.exit_status()
        {
            info!(container = %self.container.name, %status, "Container ended");
            let ended = ended(status, *since, &self.log);
            self.after_end(ended);
        }
    }

    pub(super) fn start_if_due(&mut self, now: Instant, around: &Surroundings<'_>) {
        let State::Waiting { due: Some(due), .. } = &self.state else { return };
        if now < *due {
            return;
        }
        let since = Timestamp::now();
        let spec = match process_of(&self.container, around, &self.log) {
            Ok(spec) => spec,
            Err(error) => {
                let reason = "CreateContainerConfigError";
                self.state = State::Waiting { reason, message: error.to_string(), due: None };
                return;
            }
        };
        match Process::start(&spec) {
            Ok(process) => {
                self.state = State::Running { process, since, ready: false, failures: 0, next_probe: now };
            }
            Err(error) => {
                let message = format!("{error:#}");
                self.after_end(Ended {
                    code: 128,
                    signal: None,
                    reason: "StartError",
                    message,
                    since,
                    until: since,
                });
            }
        }
    }

    fn after_end(&mut self, ended: Ended) {
        if self.policy.restarts_after(ended.code) {
            let backoff = FIRST_BACKOFF.saturating_mul(1 << self.restarts.clamp(0, 10)).min(LONGEST_BACKOFF);
            let message = format!("restarting in {backoff:?}");
            self.state =
                State::Waiting { reason: "CrashLoopBackOff", message, due: Some(Instant::now() + backoff) };
            self.restarts += 1;
            self.last = Some(ended);
        } else {
            self.state = State::Ended(ended);
        }
    }

    /// Probes whether the declared ports accept connections.
    pub(super) async fn probe(&mut self, address: Ipv4Addr, now: Instant) {
        let State::Running { ready, failures, next_probe, .. } = &mut self.state else { return };
        if now < *next_probe {
            return;
        }
        let mut answers = true;
        for port in self.container.ports.iter().flatten() {
            let Ok(port) = u16::try_from(port.container_port) else { continue };
            let connected = timeout(PROBE_TIME, TcpStream::connect((address, port))).await;
            answers &= matches!(connected, Ok(Ok(_)));
        }
        *failures = if answers { 0 } else { *failures + 1 };
        *ready = answers || (*ready && *failures < PROBE_FAILURES);
        *next_probe = if answers { now + PROBE_PERIOD } else { now };
    }

    /// Prevents restarts, because the pod is to end.
    pub(super) fn give_up(&mut self) {
        self.policy = RestartPolicy::Never;
        if let State::Waiting { due, .. } = &mut self.state {
            *due = None;
        }
    }

    pub(super) fn signal(&self, signal: Signal) {
        if let State::Running { process, .. } = &self.state {
            process.signal(signal);
        }
    }

    pub(super) async fn wait_or_kill(&mut self, deadline: Instant) {
        if let State::Running { process, .. } = &self.state
            && timeout_at(deadline, process.wait()).await.is_err()
        {
            process.kill().await;
        }
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.state, State::Running { .. })
    }

    pub(super) fn has_ever_started(&self) -> bool {
        self.last.is_some() || !matches!(self.state, State::Waiting { .. })
    }

    pub(super) fn has_ended_for_good(&self) -> bool {
        matches!(self.state, State::Ended(_))
    }

    pub(super) fn has_succeeded(&self) -> bool {
        matches!(&self.state, State::Ended(ended) if ended.code == 0)
    }

    pub(super) fn has_failed_for_good(&self) -> bool {
        self.has_ended_for_good() && !self.has_succeeded()
    }

    pub(super) fn view(&self) -> ContainerView<'_> {
        let state = match &self.state {
            State::Waiting { reason, message, .. } => StateView::Waiting { reason, message },
            State::Running { since, .. } => StateView::Running { since: *since },
            State::Ended(ended) => StateView::Ended(ended),
        };
        ContainerView {
            container: &self.container,
            state,
            ready: matches!(self.state, State::Running { ready: true, .. }),
            restarts: self.restarts,
            last: self.last.as_ref(),
        }
    }
}

fn ended(status: ExitStatus, since: Timestamp, log: &Path) -> Ended {
    // The exit code after a signal is the one that shells and container runtimes use.
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    let (reason, message) = if code == 0 { ("Completed", String::new()) } else { ("Error", tail_of(log)) };
    Ended { code, signal: status.signal(), reason, message, since, until: Timestamp::now() }
}
