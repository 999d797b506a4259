//! The live page of a test bed's cluster, `kubectl fpga web`, as a child process.

use super::control_plane::ControlPlane;
use super::identity::Identity;
use super::pool::{OPERATOR, PoolBed};
use super::process::{Process, ProcessSpec};
use super::{programs, wait};
use anyhow::Result;
use std::path::Path;
use std::time::Duration;

/// Name of the process.
const NAME: &str = "kubectl-fpga-web";
/// Longest time that the program may take to end.
const STOP: Duration = Duration::from_secs(5);

/// The parts of kube-fpga that a page asks. Without an address they are found in the cluster.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    /// Port of the page; by default a free one.
    pub port: Option<String>,
    /// Address of the extender.
    pub extender: Option<String>,
    /// Address of the picker.
    pub picker: Option<String>,
    /// Address of the pool's broker.
    pub broker: Option<String>,
    /// File of the token by which the page asks the broker.
    pub broker_token_file: Option<String>,
    /// The address at which the page takes traces.
    pub otlp_listen: Option<String>,
}

/// A page that is served with the rights of an identity.
#[derive(Debug)]
pub struct Web {
    process: Process,
    url: String,
}

impl Web {
    /// Starts the page's server and waits for its address.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub async fn start(plane: &ControlPlane, identity: &Identity, parts: &Parts) -> Result<Self> {
        Self::start_with(plane.kubeconfig(identity)?, &plane.run_dir().log(NAME), parts).await
    }

    /// Starts the page's server for a pool without a cluster, and waits for its address.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub async fn start_for_pool(pool: &PoolBed) -> Result<Self> {
        // Else the page would show the cluster of whoever starts it.
        let no_cluster = pool.logs().join("no-kubeconfig");
        let log = pool.logs().join(format!("{NAME}.log"));
        let parts = Parts {
            broker: Some(format!("http://{}", pool.broker_address())),
            broker_token_file: Some(pool.token_file(OPERATOR).display().to_string()),
            ..Parts::default()
        };
        Self::start_with(&no_cluster, &log, &parts).await
    }

    /// Starts the page's server with the rights of a kubeconfig, and waits for its address.
    ///
    /// # Errors
    /// The program is missing or does not start.
    pub async fn start_with(kubeconfig: &Path, log: &Path, parts: &Parts) -> Result<Self> {
        let mut spec = ProcessSpec::new(NAME, programs::built("kubectl-fpga")?, log)
            .args(["web", "--no-open", "--kubeconfig"])
            .arg(kubeconfig);
        for (flag, value) in [
            ("--port", &parts.port),
            ("--extender", &parts.extender),
            ("--picker", &parts.picker),
            ("--broker", &parts.broker),
            ("--broker-token-file", &parts.broker_token_file),
            ("--otlp-listen", &parts.otlp_listen),
        ] {
            if let Some(value) = value {
                spec = spec.args([flag, value]);
            }
        }
        let process = Process::start(&spec)?;
        let url = wait::until("the page's address", async || {
            process.check_running()?;
            let log = std::fs::read_to_string(process.log())?;
            let line =
                log.split_inclusive('\n').find(|line| line.starts_with("http://") && line.ends_with('\n'));
            Ok(line.map(|line| line.trim_end().to_owned()))
        })
        .await?;
        Ok(Self { process, url })
    }

    /// The page's address, with its token.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The page's server.
    #[must_use]
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Stops the page's server.
    pub async fn stop(self) {
        self.process.stop(STOP).await;
    }
}
