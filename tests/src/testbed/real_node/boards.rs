//! Our programs on a real node, as their DaemonSets run them there: a collector, a manager for each board, and the node
//! plugin. A test can kill and start each of them.

mod supervised;

use super::RealNode;
use crate::testbed::cluster::Runtime;
use crate::testbed::control_plane::ControlPlane;
use crate::testbed::identity::Identity;
use crate::testbed::process::{Process, ProcessSpec};
use crate::testbed::{artifacts, programs, wait};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node as KubeNode;
use kube::Api;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time that a program may take to end before it is killed.
const STOP: Duration = Duration::from_secs(5);
/// The collector's socket on the node.
const COLLECTOR: &str = "unix:/run/fpga/collector.sock";
/// Port for the metrics of the first board's manager.
const METRICS_PORT: usize = 9464;
/// Port for the metrics of the node plugin: above those of all managers.
const PLUGIN_METRICS_PORT: usize = 9964;
/// The resource that pods ask for.
const RESOURCE: &str = "fpga-scheduling.io/accelerated";

/// How the node plugin runs.
#[derive(Debug, Clone)]
pub struct PluginOptions {
    /// Number of containers that can have a board at the same time.
    pub instances_per_board: usize,
    /// Vendors with a resource of their own.
    pub vendor_resources: Vec<String>,
    /// Names of the boards, in the order of their ids; `emulated` for those beyond.
    pub board_names: Vec<String>,
    /// Whether the node has a folder with the bitstreams of all functions, for managers and plugin.
    pub has_bitstreams: bool,
    /// More arguments of the plugin.
    pub arguments: Vec<String>,
}

/// Our programs on one node.
pub struct Boards {
    /// Path by which this program reaches the node's files.
    root: PathBuf,
    /// Address of the node.
    address: Ipv4Addr,
    plugin_log: PathBuf,
    node_name: String,
    client: kube::Client,
    runtime: Runtime,
    bitstreams: PathBuf,
    kubeconfig: PathBuf,
    options: PluginOptions,
    collector: Process,
    /// The managers, in the order of the boards.
    pub managers: Vec<BoardManager>,
    plugin: Option<Process>,
    /// The supervisor and the group of its managers; see [`Boards::supervise`].
    supervisor: Option<Process>,
    managers_gid: Option<u32>,
}

/// A board and its manager.
pub struct BoardManager {
    /// Id of the board.
    pub board: String,
    /// The vendor that the manager reports from its next start on.
    pub vendor: String,
    process: Option<Process>,
}

impl Default for PluginOptions {
    /// The plugin's own defaults, with a folder of bitstreams.
    fn default() -> Self {
        Self {
            instances_per_board: 16,
            vendor_resources: Vec::new(),
            board_names: Vec::new(),
            has_bitstreams: true,
            arguments: Vec::new(),
        }
    }
}

impl Boards {
    /// Starts the programs for boards with these ids and waits until the node offers them.
    ///
    /// # Errors
    /// A program is missing or does not start, or the kubelet does not offer the boards.
    pub async fn start(
        node: &RealNode,
        plane: &ControlPlane,
        runtime: Runtime,
        ids: &[&str],
    ) -> Result<Self> {
        Self::start_with(PluginOptions::default(), node, plane, runtime, ids).await
    }

    /// Like [`Self::start`], with these options of the node plugin.
    ///
    /// # Errors
    /// A program is missing or does not start, or the kubelet does not offer the boards.
    pub async fn start_with(
        options: PluginOptions,
        node: &RealNode,
        plane: &ControlPlane,
        runtime: Runtime,
        ids: &[&str],
    ) -> Result<Self> {
        let instances = options.instances_per_board * ids.len();
        std::fs::create_dir_all(node.machine().path("/run/fpga")).context("can't make /run/fpga")?;
        let bitstreams = artifacts::bitstreams(runtime)?;
        let kubeconfig = plane.kubeconfig(&Identity::NodePlugin)?.to_owned();
        let checkpoint = node.machine().dir().join("collector");
        let collector_spec = process(node, "fpga-collector", "fpga-collector")?
            .args(["--node-name", node.name(), "--listen-unix", "/run/fpga/collector.sock"])
            .arg("--checkpoint-dir")
            .arg(&checkpoint)
            .arg("--kubeconfig")
            .arg(plane.kubeconfig(&Identity::Collector)?);
        std::fs::create_dir_all(&checkpoint).context("can't make the collector's folder")?;
        let collector = node.machine().spawn(collector_spec)?;
        let mut boards = Self {
            root: node.machine().path("/"),
            address: plane.network().node(node.spec.index).host(),
            plugin_log: node.log("fpga-node-plugin"),
            node_name: node.name().to_owned(),
            client: plane.client().clone(),
            runtime,
            bitstreams,
            kubeconfig,
            options,
            collector,
            managers: Vec::new(),
            plugin: None,
            supervisor: None,
            managers_gid: None,
        };
        for id in ids {
            let vendor = runtime.vendor().to_owned();
            boards.managers.push(BoardManager { board: (*id).to_owned(), vendor, process: None });
            boards.start_manager(node, boards.managers.len() - 1).await?;
        }
        boards.start_plugin(node)?;
        boards.wait_offered(instances).await?;
        Ok(boards)
    }

    /// Starts the manager of the board with this index and waits until it listens.
    ///
    /// # Errors
    /// The manager does not listen in time.
    pub async fn start_manager(&mut self, node: &RealNode, index: usize) -> Result<()> {
        let metrics = self.metrics_address(index);
        let name = self.options.board_names.get(index).map_or("emulated", String::as_str);
        let manager = self.managers.get_mut(index).context("there is no such board")?;
        let (machine, board) = (node.machine(), &manager.board);
        for folder in ["managers", "tokens"] {
            std::fs::create_dir_all(machine.path(format!("/run/fpga/{folder}/{board}")))
                .context("can't make a board's folder")?;
        }
        let ready = machine.dir().join(format!("{board}.ready"));
        let _ = std::fs::remove_file(&ready);
        let spec = process(node, "fpga-device-manager", &format!("fpga-device-manager-{board}"))?
            .args(["serve", "--listen", &format!("unix:/run/fpga/managers/{board}/dm.sock")])
            .args(["--tokens", &format!("/run/fpga/tokens/{board}"), "--device-id", board])
            .args(["--collector", COLLECTOR, "--board", name, "--shell", "1.0", "--slots", "4"])
            .args(["--runtime", &self.runtime.argument()?, "--vendor", &manager.vendor])
            .args(["--reconfiguration-time", "10ms", "--metrics-listen", &metrics])
            .args(bitstreams_argument(&self.options, &self.bitstreams))
            .arg("--ready-file")
            .arg(&ready);
        let process = machine.spawn(spec)?;
        wait::until("the device manager to listen", async || {
            process.check_running()?;
            Ok(ready.exists().then_some(()))
        })
        .await?;
        manager.process = Some(process);
        Ok(())
    }

    /// The URL of the metrics of the manager of the board with this index.
    #[must_use]
    pub fn metrics_url(&self, index: usize) -> String {
        format!("http://{}/metrics", self.metrics_address(index))
    }

    /// The URL of the node plugin's metrics.
    #[must_use]
    pub fn plugin_metrics_url(&self) -> String {
        format!("http://{}/metrics", self.plugin_metrics_address())
    }

    fn plugin_metrics_address(&self) -> String {
        format!("{}:{PLUGIN_METRICS_PORT}", self.address)
    }

    fn metrics_address(&self, index: usize) -> String {
        format!("{}:{}", self.address, METRICS_PORT + index)
    }

    /// Kills the manager of the board with this index, as a crash would.
    pub async fn kill_manager(&mut self, index: usize) {
        if let Some(manager) = self.managers.get_mut(index).and_then(|manager| manager.process.take()) {
            manager.kill().await;
        }
    }

    /// Starts the node plugin.
    ///
    /// # Errors
    /// The program can't be started.
    pub fn start_plugin(&mut self, node: &RealNode) -> Result<()> {
        let spec = process(node, "fpga-node-plugin", "fpga-node-plugin")?
            .args(["--node-name", node.name(), "--collector", COLLECTOR, "--shutdown-delay", "0s"])
            .args(["--instances-per-board", &self.options.instances_per_board.to_string()])
            .args(["--metrics-listen", &self.plugin_metrics_address()])
            .args(self.options.vendor_resources.iter().flat_map(|vendor| ["--vendor-resources", vendor]))
            .arg("--library")
            .arg(programs::built("libfpga_opencl_icd.so")?)
            .args(bitstreams_argument(&self.options, &self.bitstreams))
            .args(&self.options.arguments)
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(self.managers_gid.map(|gid| format!("--managers-gid={gid}")));
        self.plugin = Some(node.machine().spawn(spec)?);
        Ok(())
    }

    /// Kills the node plugin, as a crash would.
    pub async fn kill_plugin(&mut self) {
        if let Some(plugin) = self.plugin.take() {
            plugin.kill().await;
        }
    }

    /// Waits until the kubelet offers this number of instances.
    ///
    /// # Errors
    /// The kubelet does not offer them in time.
    pub async fn wait_offered(&self, instances: usize) -> Result<()> {
        let nodes: Api<KubeNode> = Api::all(self.client.clone());
        wait::until(&format!("the node to offer {instances} instances"), async || {
            self.check_running()?;
            let status = nodes.get(&self.node_name).await?.status.unwrap_or_default();
            let offered = status.allocatable.and_then(|mut quantities| quantities.remove(RESOURCE));
            Ok(offered.is_some_and(|offered| offered.0 == instances.to_string()).then_some(()))
        })
        .await
    }

    /// Number of times that the kubelet has begun to watch the plugin's instances.
    #[must_use]
    pub fn registrations(&self) -> usize {
        let log = std::fs::read_to_string(&self.plugin_log).unwrap_or_default();
        log.matches("The kubelet watches the instances").count()
    }

    /// Waits until the kubelet has begun to watch the plugin's instances more than `before` times.
    ///
    /// # Errors
    /// The kubelet does not do so in time.
    pub async fn wait_registered(&self, before: usize) -> Result<()> {
        wait::until("the kubelet to watch the plugin's instances", async || {
            Ok((self.registrations() > before).then_some(()))
        })
        .await
    }

    /// The path by which this program reaches the socket of a board's manager.
    #[must_use]
    pub fn socket(&self, board: &str) -> PathBuf {
        self.root.join(format!("run/fpga/managers/{board}/dm.sock"))
    }

    /// The tokens of a namespace that a board's manager takes.
    #[must_use]
    pub fn tokens(&self, board: &str, namespace: &str) -> Vec<String> {
        let folder = self.root.join(format!("run/fpga/tokens/{board}/{namespace}"));
        let files = std::fs::read_dir(folder).into_iter().flatten().flatten();
        // A file that will take a token's place has another name, and may be empty.
        let tokens = files.filter(|file| !file.file_name().as_encoded_bytes().starts_with(b"."));
        tokens.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect()
    }

    /// Fails with the end of the log if a program that should run has ended.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check_running(&self) -> Result<()> {
        let managers = self.managers.iter().filter_map(|manager| manager.process.as_ref());
        let others = [&self.collector].into_iter().chain(&self.plugin).chain(&self.supervisor);
        managers.chain(others).try_for_each(Process::check_running)
    }

    /// Stops the programs.
    pub async fn stop(self, node: &RealNode) {
        let managers = self.managers.into_iter().filter_map(|manager| manager.process);
        let managers = managers.chain(self.supervisor);
        for process in self.plugin.into_iter().chain(managers).chain([self.collector]) {
            node.machine().terminate(&process, STOP).await;
        }
    }
}

/// The argument of managers and plugin for the node's folder of bitstreams.
fn bitstreams_argument(options: &PluginOptions, folder: &Path) -> Option<String> {
    options.has_bitstreams.then(|| format!("--bitstreams={}", folder.display()))
}

fn process(node: &RealNode, program: &str, log: &str) -> Result<ProcessSpec> {
    let name = format!("{program} of {}", node.name());
    Ok(node.machine().process(&name, &programs::built(program)?, &node.log(log)))
}
