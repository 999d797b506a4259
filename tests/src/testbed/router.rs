//! The front door of functions: the endpoint picker and a real Envoy with the configuration that the chart installs, as
//! child processes. `hack/envoy.sh` brings Envoy.

use super::control_plane::ControlPlane;
use super::http_client::HttpClient;
use super::identity::Identity;
use super::process::{Process, ProcessSpec};
use super::{programs, wait};
use anyhow::{Context as _, Result, ensure};
use fpga_net::testing::envoy_config;
use std::net::SocketAddr;
use std::time::Duration;

/// Port of functions.
const PORT: u16 = 8088;
/// Port of the picker, for Envoy.
const PICKER_PORT: u16 = 9470;
/// Port of the picker's probes and metrics.
const METRICS_PORT: u16 = 9471;
/// Longest time that a program may take to start.
const START: Duration = Duration::from_secs(60);
/// Longest time that a program may take to end.
const STOP: Duration = Duration::from_secs(10);

/// A running picker and its Envoy.
#[derive(Debug)]
pub struct Router {
    envoy: Process,
    picker: Process,
    address: SocketAddr,
    metrics_url: String,
}

impl Router {
    /// Starts both, and waits until functions can be called.
    ///
    /// # Errors
    /// A program is missing or does not start.
    pub async fn start(plane: &ControlPlane, http: &HttpClient) -> Result<Self> {
        let host = plane.network().control_plane();
        let folder = plane.run_dir().path().join("router");
        std::fs::create_dir_all(&folder).context("can't make the router's folder")?;
        let endpoints = folder.join("endpoints.json");
        let [listen, picker_address, metrics] =
            [PORT, PICKER_PORT, METRICS_PORT].map(|port| SocketAddr::from((host, port)));
        let name = "fpga-endpoint-picker";
        let spec = ProcessSpec::new(name, programs::built(name)?, plane.run_dir().log(name))
            .args(["--listen", &picker_address.to_string(), "--metrics-listen", &metrics.to_string()])
            .arg("--envoy-endpoints")
            .arg(&endpoints)
            .arg("--kubeconfig")
            .arg(plane.kubeconfig(&Identity::Router)?)
            // No gateway needs time to turn to another replica.
            .args(["--shutdown-delay", "0s"]);
        let picker = Process::start(&spec)?;
        picker.wait_ready(http, &format!("http://{metrics}/readyz"), START).await?;

        let program = programs::repository().join("build/envoy/envoy");
        ensure!(program.exists(), "{} is missing. Run `make envoy` (once)", program.display());
        let config = folder.join("envoy.json");
        let text = envoy_config(listen, picker_address, &endpoints).to_string();
        std::fs::write(&config, text).context("can't write Envoy's configuration")?;
        let spec = ProcessSpec::new("envoy", program, plane.run_dir().log("envoy"))
            .args(["--concurrency", "1", "--log-level", "warning", "--disable-hot-restart", "--config-path"])
            .arg(config);
        let envoy = Process::start(&spec)?;
        wait::until("Envoy to listen", START, async || {
            envoy.check_running()?;
            Ok(tokio::net::TcpStream::connect(listen).await.ok().map(drop))
        })
        .await?;
        Ok(Self { envoy, picker, address: listen, metrics_url: format!("http://{metrics}/metrics") })
    }

    /// The URL at which a function is called.
    #[must_use]
    pub fn url(&self, namespace: &str, function: &str) -> String {
        format!("http://{}/function/{function}.{namespace}", self.address)
    }

    /// URL of the picker's metrics.
    #[must_use]
    pub fn metrics_url(&self) -> &str {
        &self.metrics_url
    }

    /// Fails with the end of the log if a program has ended.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check_running(&self) -> Result<()> {
        self.picker.check_running()?;
        self.envoy.check_running()
    }

    /// Ends Envoy, then the picker.
    pub async fn stop(self) {
        self.envoy.stop(STOP).await;
        self.picker.stop(STOP).await;
    }
}
