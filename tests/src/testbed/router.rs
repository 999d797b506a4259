//! The front door of functions: the endpoint picker and a real Envoy with the configuration that the chart installs, as
//! child processes. `hack/envoy.sh` brings Envoy.

use super::control_plane::ControlPlane;
use super::envoy;
use super::http_client::HttpClient;
use super::identity::Identity;
use super::picker::Picker;
use super::process::Process;
use anyhow::{Context as _, Result};
use fpga_test_kit::envoy_config;
use serde_json::json;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Port of functions, and of Envoy's own metrics.
const PORT: u16 = 8088;
const ENVOY_METRICS_PORT: u16 = 9472;
/// Longest time that a program may take to end.
const STOP: Duration = Duration::from_secs(10);

/// A running picker and its Envoy.
#[derive(Debug)]
pub struct Router {
    envoy: Process,
    picker: Picker,
    address: SocketAddr,
}

impl Router {
    /// Starts both, the picker with these further arguments, and waits until functions can be called.
    ///
    /// # Errors
    /// A program is missing or does not start.
    pub async fn start(plane: &ControlPlane, http: &HttpClient, more: &[&str]) -> Result<Self> {
        Self::start_as(plane, http, plane.kubeconfig(&Identity::Router)?, more).await
    }

    /// As [`Self::start`], with this kubeconfig of the picker.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_as(
        plane: &ControlPlane,
        http: &HttpClient,
        kubeconfig: &Path,
        more: &[&str],
    ) -> Result<Self> {
        let host = plane.network().control_plane();
        let endpoints = plane.run_dir().path().join("endpoints.json");
        let args = ["--envoy-endpoints", endpoints.to_str().context("the run's folder is not UTF-8")?];
        let args = [&args, more].concat();
        let picker = Picker::start(host, kubeconfig, plane.run_dir(), http, &args).await?;
        let address = SocketAddr::from((host, PORT));
        let mut bootstrap = envoy_config(address, picker.address(), &endpoints);
        bootstrap["admin"] =
            json!({"address": {"socket_address": {"address": host, "port_value": ENVOY_METRICS_PORT}}});
        let envoy = envoy::start(&bootstrap, address, plane.run_dir()).await?;
        Ok(Self { envoy, picker, address })
    }

    /// The URL at which a function is called.
    #[must_use]
    pub fn url(&self, namespace: &str, function: &str) -> String {
        format!("http://{}/function/{function}.{namespace}", self.address)
    }

    /// The address of the picker for people and their tools.
    #[must_use]
    pub fn picker_url(&self) -> String {
        self.picker.url("")
    }

    /// The URL of the picker's metrics.
    #[must_use]
    pub fn metrics_url(&self) -> String {
        self.picker.url("/metrics")
    }

    /// The URL of Envoy's metrics.
    #[must_use]
    pub fn envoy_metrics_url(&self) -> String {
        format!("http://{}:{ENVOY_METRICS_PORT}/stats/prometheus", self.address.ip())
    }

    /// The picker.
    #[must_use]
    pub fn picker(&self) -> &Picker {
        &self.picker
    }

    /// Fails with the end of the log if a program has ended.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check_running(&self) -> Result<()> {
        self.picker.process().check_running()?;
        self.envoy.check_running()
    }

    /// Ends Envoy, then the picker.
    pub async fn stop(self) {
        self.envoy.stop(STOP).await;
        self.picker.process().stop(STOP).await;
    }
}
