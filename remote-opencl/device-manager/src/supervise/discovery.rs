//! Finds the devices of the runtime, in a process of its own: a runtime reads its devices once in a process, and a
//! runtime that crashes must not end the supervisor.

use crate::boards::FoundDevice;
use fpga_vendor::runtime::Runtime;
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// Longest time that a runtime may take to list its devices: it may compile its library the first time.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The reason why the devices are not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum DiscoveryError {
    /// The process can't be started.
    #[error("the command `boards` can't be started: {0}")]
    Start(#[from] io::Error),
    /// The runtime does not answer.
    #[error("the runtime does not list its devices in {TIMEOUT:?}")]
    Timeout,
    /// The process failed.
    #[error("the runtime's devices can't be listed: {0}")]
    Failed(String),
    /// The process printed something else.
    #[error("the list of devices can't be read: {0}")]
    Unreadable(#[from] serde_json::Error),
}

/// The devices of the runtime.
///
/// # Errors
/// [`DiscoveryError`], if they are not known.
pub(super) async fn devices(runtime: &Runtime) -> Result<Vec<FoundDevice>, DiscoveryError> {
    let mut command = Command::new("/proc/self/exe");
    command.arg0("fpga-device-manager").arg("boards").arg("--runtime").arg(runtime.to_string());
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = tokio::time::timeout(TIMEOUT, command.output()).await;
    let output = output.map_err(|_| DiscoveryError::Timeout)??;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let reason = said.lines().next_back().unwrap_or_default();
        return Err(DiscoveryError::Failed(format!("{}, {reason}", output.status)));
    }
    // A runtime may print lines of its own.
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| line.starts_with(b"{"));
    Ok(lines.map(serde_json::from_slice).collect::<Result<_, _>>()?)
}
