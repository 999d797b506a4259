//! An extender that kube-scheduler of the test bed's control plane asks.

use super::control_plane::ControlPlane;
use super::http_client::HttpClient;
use super::identity::Identity;
use super::process::{Process, ProcessSpec};
use super::programs;
use anyhow::Result;
use fpga_test_kit::patience;

/// Port of the extender.
const PORT: u16 = 9461;

/// The URL of a path on the extender of this control plane.
#[must_use]
pub fn url(plane: &ControlPlane, path: &str) -> String {
    format!("http://{}:{PORT}{path}", plane.network().control_plane())
}

/// Starts the extender and waits until it is ready, which means that its caches are filled.
///
/// # Errors
/// The extender does not become ready.
pub async fn start(plane: &ControlPlane, http: &HttpClient, args: &[&str]) -> Result<Process> {
    let name = "fpga-scheduler-extender";
    let spec = ProcessSpec::new(name, programs::built(name)?, plane.run_dir().log(name))
        .arg("--listen")
        .arg(format!("{}:{PORT}", plane.network().control_plane()))
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(&Identity::Extender)?)
        // No client needs time to turn to another replica.
        .args(["--shutdown-delay", "0s"])
        .args(args);
    let process = Process::start(&spec)?;
    process.wait_ready(http, &url(plane, "/readyz"), patience()).await?;
    Ok(process)
}
