//! Managers as their DaemonSet runs them: `supervise`, which is not root, and the node plugin, which lets the group of
//! managers read tokens.

use super::super::RealNode;
use super::{Boards, COLLECTOR, METRICS_PORT};
use crate::testbed::process::ProcessSpec;
use crate::testbed::{programs, wait};
use anyhow::{Context as _, Result};
use std::os::unix::fs::chown;

/// User and group of the managers.
const MANAGER: u32 = 10460;
/// Folder of the managers' own files, on the node.
const HOME: &str = "/var/lib/fpga-managers";

impl Boards {
    /// Starts the supervisor of `boards` boards, with further arguments for the managers, and waits until the node
    /// offers them. The boards are named `KIND-0`, `KIND-1`, and so on.
    ///
    /// # Errors
    /// A program does not start, or the kubelet does not offer the boards.
    pub async fn supervise(
        &mut self,
        node: &RealNode,
        kind: &str,
        boards: usize,
        arguments: &[&str],
    ) -> Result<()> {
        let machine = node.machine();
        self.managers_gid = Some(MANAGER);
        self.kill_plugin().await;
        self.start_plugin(node)?;
        let home = machine.path(HOME);
        std::fs::create_dir_all(&home).context("can't make the managers' folder")?;
        for path in [&home, &machine.path("/run/fpga/collector.sock")] {
            chown(path, Some(MANAGER), Some(MANAGER)).context("can't give a file to the managers")?;
        }
        let user = MANAGER.to_string();
        let spec: ProcessSpec = machine
            .process("supervisor", "setpriv".as_ref(), &node.log("fpga-device-manager-supervise"))
            .args(["--reuid", &user, "--regid", &user, "--clear-groups", "--inh-caps=-all", "--"])
            .arg(programs::built("fpga-device-manager")?)
            .args(["supervise", "--kind", kind, "--boards-per-device", &boards.to_string()])
            .args(["--runtime", &self.runtime.argument()?])
            .args(["--metrics-listen", &format!("{}:{METRICS_PORT}", self.address)])
            .args(["--ready-file", &format!("{HOME}/ready")])
            .args(["--", "--collector", COLLECTOR, "--board", "emulated", "--shell", "1.0", "--slots", "4"])
            .args(["--vendor", self.runtime.vendor(), "--bitstreams"])
            .arg(&self.bitstreams)
            .args(arguments)
            .env("HOME", HOME);
        let process = machine.spawn(spec)?;
        wait::until("the managers to listen", async || {
            process.check_running()?;
            Ok(home.join("ready").exists().then_some(()))
        })
        .await?;
        self.supervisor = Some(process);
        self.wait_offered(16 * boards).await
    }
}
