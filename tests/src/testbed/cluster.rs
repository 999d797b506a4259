//! The whole loop on one machine: control plane, extender, and nodes with a collector and a device manager each. All
//! of them are real programs, which a test can kill and restart.

mod board;
mod nodes;
mod pods;
pub mod rbac;
mod runtime;

pub use board::{Board, BoardSpec, CollectorChoice, Disk};
pub use runtime::Runtime;

use super::control_plane::{ControlPlane, SchedulerConfig};
use super::http_client::HttpClient;
use super::manifests::NAMESPACE;
use super::process::Process;
use super::{extender, wait};
use anyhow::{Context as _, Result};
use fpga_test_kit::patience;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that a program may take to end before it is killed.
const STOP: Duration = Duration::from_secs(30);

/// The specification of a cluster.
#[derive(Debug, Clone)]
pub struct ClusterSpec {
    /// The nodes, each with a board.
    pub boards: Vec<BoardSpec>,
    /// Weights of locality, usage and reconfiguration, such as `1-2-2`.
    pub weights: String,
    /// The form of nodes in kube-scheduler's requests to the extender.
    pub node_cache: NodeCache,
    /// kube-scheduler's behaviour while the extender is away.
    pub extender_away: ExtenderAway,
    /// Additional arguments of the extender.
    pub extender_args: Vec<String>,
}

/// The form of nodes in kube-scheduler's requests (`nodeCacheCapable`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeCache {
    /// Names of nodes.
    Capable,
    /// Whole nodes.
    FullNodes,
}

/// kube-scheduler's behaviour while the extender is away (`ignorable`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtenderAway {
    /// FPGA pods wait.
    Wait,
    /// FPGA pods are placed without the extender.
    Ignore,
}

/// A running cluster. Dropping it without [`Cluster::stop`] kills all programs.
pub struct Cluster {
    spec: ClusterSpec,
    /// The boards with their nodes, in the order of the specification.
    pub boards: Vec<Board>,
    extender: Option<Process>,
    plane: ControlPlane,
    http: HttpClient,
}

impl Cluster {
    /// Starts all programs and waits until pods can be placed.
    ///
    /// # Errors
    /// A program is missing or does not start.
    pub async fn start(spec: ClusterSpec) -> Result<Self> {
        let names: Vec<&str> = spec.boards.iter().map(|board| board.name.as_str()).collect();
        let plane = ControlPlane::start(&names).await?;
        rbac::grant(&plane).await?;
        let http = HttpClient::new(patience());
        let mut cluster = Self { spec, boards: Vec::new(), extender: None, plane, http };
        for (index, board) in cluster.spec.boards.clone().into_iter().enumerate() {
            let index = u8::try_from(index).context("too many nodes")?;
            cluster.boards.push(Board::start(board, index, &cluster.plane).await?);
        }
        cluster.start_extender().await?;
        let config = cluster.scheduler_config()?;
        cluster.plane.start_scheduler(&config).await?;
        for board in &cluster.boards {
            board.node.wait_ready(patience()).await?;
            cluster.wait_until_known(board).await?;
        }
        Ok(cluster)
    }

    /// Waits until the extender knows the board by the collector's annotation.
    async fn wait_until_known(&self, board: &Board) -> Result<()> {
        let spec = board.spec();
        if spec.runtime.is_none() || spec.collector == CollectorChoice::None {
            return Ok(());
        }
        let url = self.extender_url("/nodes");
        wait::until(&format!("the extender to know the board of {}", spec.name), async || {
            let known = self.http.get(&url).await?.json()?;
            let mut nodes = known.as_array().into_iter().flatten();
            let node = nodes.find(|node| node["name"] == spec.name.as_str());
            let has_device = node.is_some_and(|node| !node["known"]["state"]["devices"][0].is_null());
            Ok(has_device.then_some(()))
        })
        .await
    }

    fn scheduler_config(&self) -> Result<SchedulerConfig> {
        let capable = self.spec.node_cache == NodeCache::Capable;
        let ignorable = self.spec.extender_away == ExtenderAway::Ignore;
        SchedulerConfig::shipped(&self.extender_url(""))?
            .with("nodeCacheCapable", &capable.to_string())?
            .with("ignorable", &ignorable.to_string())
    }

    /// Restarts kube-scheduler with another behaviour towards the extender.
    ///
    /// # Errors
    /// kube-scheduler does not start.
    pub async fn reconfigure_scheduler(
        &mut self,
        node_cache: NodeCache,
        extender_away: ExtenderAway,
    ) -> Result<()> {
        self.spec.node_cache = node_cache;
        self.spec.extender_away = extender_away;
        let config = self.scheduler_config()?;
        self.plane.start_scheduler(&config).await
    }

    /// Restarts kube-scheduler so that it counts the instances of boards that nodes advertise, as with node plugins.
    ///
    /// # Errors
    /// kube-scheduler does not start.
    pub async fn count_instances(&mut self) -> Result<()> {
        let config = self.scheduler_config()?.with("ignoredByScheduler", "false")?;
        self.plane.start_scheduler(&config).await
    }

    /// The URL of a path on the extender.
    #[must_use]
    pub fn extender_url(&self, path: &str) -> String {
        extender::url(&self.plane, path)
    }

    /// Starts the extender and waits until it is ready, which means that its caches are filled.
    ///
    /// # Errors
    /// The extender does not become ready.
    pub async fn start_extender(&mut self) -> Result<()> {
        let mut args = vec!["--weights", &self.spec.weights];
        args.extend(self.spec.extender_args.iter().map(String::as_str));
        self.extender = Some(extender::start(&self.plane, &self.http, &args).await?);
        Ok(())
    }

    /// Restarts the extender with other weights.
    ///
    /// # Errors
    /// The extender does not become ready.
    pub async fn set_weights(&mut self, weights: &str) -> Result<()> {
        weights.clone_into(&mut self.spec.weights);
        self.kill_extender().await;
        self.start_extender().await
    }

    /// The extender, for tests in which it gets no processor time; none while it is killed.
    #[must_use]
    pub fn extender(&self) -> Option<&Process> {
        self.extender.as_ref()
    }

    /// Restarts kube-scheduler so that it works while it has the Lease of the chart's own scheduler.
    ///
    /// # Errors
    /// The rights on the Lease can't be given, or kube-scheduler does not start.
    pub async fn start_leading_scheduler(&mut self) -> Result<()> {
        rbac::grant_scheduler_lease(&self.plane).await?;
        let config = self.scheduler_config()?.leading(NAMESPACE, "kube-fpga-scheduler")?;
        self.plane.start_scheduler(&config).await
    }

    /// Ends kube-scheduler.
    pub async fn stop_scheduler(&mut self) {
        self.plane.stop_scheduler().await;
    }

    /// Kills the extender, as a crash would.
    pub async fn kill_extender(&mut self) {
        if let Some(extender) = self.extender.take() {
            extender.kill().await;
        }
    }

    /// The control plane.
    #[must_use]
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// The HTTP client of the cluster.
    #[must_use]
    pub fn http(&self) -> &HttpClient {
        &self.http
    }

    /// The board whose node has this name.
    ///
    /// # Errors
    /// There is no such node.
    pub fn board(&mut self, name: &str) -> Result<&mut Board> {
        let board = self.boards.iter_mut().find(|board| board.spec().name == name);
        board.with_context(|| format!("there is no node {name}"))
    }

    /// The folder of the logs.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.plane.run_dir().path().join("logs")
    }

    /// Fails with the end of the log if a program that should run has ended.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check_running(&self) -> Result<()> {
        self.plane.check_running()?;
        self.extender.iter().try_for_each(Process::check_running)?;
        self.boards.iter().try_for_each(Board::check_running)
    }

    /// Stops all programs in this order: pods, boards, extender, control plane.
    pub async fn stop(self) {
        let Self { boards, extender, plane, .. } = self;
        futures::future::join_all(boards.into_iter().map(Board::stop)).await;
        if let Some(extender) = extender {
            extender.stop(STOP).await;
        }
        plane.stop().await;
    }
}
