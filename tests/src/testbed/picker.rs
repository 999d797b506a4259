//! The endpoint picker of a test bed's control plane, as a child process.

use super::http_client::{Answer, HttpClient};
use super::process::{Process, ProcessSpec};
use super::programs;
use super::run_dir::RunDir;
use anyhow::{Context as _, Result};
use fpga_test_kit::patience;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

/// Port of gateways.
const PORT: u16 = 9470;
/// Port of people and their tools.
pub const READ_PORT: u16 = 9471;

/// A running picker that knows all functions.
#[derive(Debug)]
pub struct Picker {
    process: Process,
    ip: Ipv4Addr,
}

impl Picker {
    /// Starts a picker at `ip` and waits until it knows all functions of the API server.
    ///
    /// # Errors
    /// The picker does not become ready.
    pub async fn start(
        ip: Ipv4Addr,
        kubeconfig: &Path,
        run_dir: &RunDir,
        http: &HttpClient,
        args: &[&str],
    ) -> Result<Self> {
        let name = "fpga-endpoint-picker";
        let spec = ProcessSpec::new(name, programs::built(name)?, run_dir.log(name))
            .args(["--listen", &format!("{ip}:{PORT}"), "--read-listen", &format!("{ip}:{READ_PORT}")])
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .args(["--shutdown-delay", "0s", "--drain-timeout", "1s", "--read-access", "anyone"])
            .args(args);
        let picker = Self { process: Process::start(&spec)?, ip };
        picker.process.wait_ready(http, &picker.url("/readyz"), patience()).await?;
        Ok(picker)
    }

    /// The address for gateways.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        (self.ip, PORT).into()
    }

    /// The URL of a path on the port for people and their tools.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("http://{}:{READ_PORT}{path}", self.ip)
    }

    /// The picker's metrics.
    ///
    /// # Errors
    /// The picker does not answer.
    pub async fn metrics(&self, http: &HttpClient) -> Result<Answer> {
        self.process.check_running()?;
        http.get(&self.url("/metrics")).await.context("the picker's metrics")
    }

    /// The value of the picker's metric `name` with a label that has the value `label`; 0 if there is none.
    ///
    /// # Errors
    /// The picker does not answer.
    pub async fn labelled(&self, http: &HttpClient, name: &str, label: &str) -> Result<f64> {
        let text = self.metrics(http).await?.text();
        let label = format!("=\"{label}\"");
        let found = text.lines().find_map(|line| {
            let (key, value) = line.rsplit_once(' ')?;
            let is_it = key.starts_with(name) && key.contains(&label);
            is_it.then(|| value.parse().ok())?
        });
        Ok(found.unwrap_or(0.0))
    }

    /// The process.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }
}
