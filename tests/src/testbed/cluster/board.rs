//! A node with a board: stand-in kubelet, collector and device manager. Collector and device manager can be killed
//! and restarted.

use super::{Runtime, STOP};
use crate::testbed::control_plane::ControlPlane;
use crate::testbed::http_client::HttpClient;
use crate::testbed::identity::Identity;
use crate::testbed::node::{Node, NodeSpec};
use crate::testbed::process::{Process, ProcessSpec};
use crate::testbed::{programs, wait};
use anyhow::{Context as _, Result, ensure};
use fpga_test_kit::patience;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

const COLLECTOR_PORT: u16 = 9460;
const MANAGER_METRICS_PORT: u16 = 9464;
const MANAGER_TCP_PORT: u16 = 9465;

/// The specification of a board and its node.
#[derive(Debug, Clone)]
pub struct BoardSpec {
    /// Name of the node.
    pub name: String,
    /// The OpenCL runtime that stands for the board; without one there is no device manager.
    pub runtime: Option<Runtime>,
    /// Board type in the node's label.
    pub board: String,
    /// Shell version in the node's label.
    pub shell: String,
    /// Number of slots.
    pub slots: u32,
    /// Modelled time of a reconfiguration.
    pub reconfiguration: Duration,
    /// Folder with bitstreams (`NAME.bitstream`), if there is one.
    pub bitstreams: Option<PathBuf>,
    /// Whether a collector runs.
    pub collector: CollectorChoice,
    /// Additional arguments of the collector.
    pub collector_args: Vec<String>,
    /// Additional arguments of the device manager.
    pub device_manager_args: Vec<String>,
    /// Additional environment variables of the device manager.
    pub device_manager_env: Vec<(String, String)>,
}

/// Whether a collector runs on the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectorChoice {
    /// A collector runs.
    Run,
    /// No collector runs: the test writes the node's annotation itself.
    None,
}

/// The disk with a collector's checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// Files take no more bytes.
    Full,
    /// There is room.
    Free,
}

/// A running node with its board.
#[derive(Debug)]
pub struct Board {
    /// The stand-in kubelet.
    pub node: Node,
    spec: BoardSpec,
    dir: PathBuf,
    collector_address: String,
    metrics_address: String,
    tcp_address: String,
    kubeconfig: PathBuf,
    logs: PathBuf,
    collector: Option<Process>,
    device_manager: Option<Process>,
    http: HttpClient,
}

impl BoardSpec {
    /// A board like the demo's: 4 slots, 10 ms per reconfiguration.
    #[must_use]
    pub fn new(name: &str, runtime: Option<Runtime>) -> Self {
        Self {
            name: name.to_owned(),
            runtime,
            board: "emulated".to_owned(),
            shell: "1.0".to_owned(),
            slots: 4,
            reconfiguration: Duration::from_millis(10),
            bitstreams: None,
            collector: CollectorChoice::Run,
            collector_args: Vec::new(),
            device_manager_args: Vec::new(),
            device_manager_env: Vec::new(),
        }
    }

    fn labels(&self) -> BTreeMap<String, String> {
        let vendor = self.runtime.map_or("none", Runtime::vendor);
        [("fpga-vendor", vendor), ("board", &self.board), ("shell-version", &self.shell)]
            .into_iter()
            .map(|(name, value)| (format!("fpga-scheduling.io/{name}"), value.to_owned()))
            .collect()
    }
}

impl Board {
    pub(super) async fn start(spec: BoardSpec, index: u8, plane: &ControlPlane) -> Result<Self> {
        let network = plane.network().node(index);
        let run_dir = plane.run_dir();
        let dir = run_dir.path().join("nodes").join(&spec.name);
        for folder in ["checkpoint", "icd", "pods"] {
            std::fs::create_dir_all(dir.join(folder)).context("can't make a node's folder")?;
        }
        if spec.runtime.is_some() {
            let icd = programs::built("libfpga_opencl_icd.so")?;
            std::fs::write(dir.join("icd/fpga.icd"), format!("{}\n", icd.display()))
                .context("can't write the .icd")?;
        }
        let env = [
            ("FPGA_DEVICE_MANAGERS", format!("unix:{}", dir.join("dm0.sock").display())),
            ("OCL_ICD_VENDORS", dir.join("icd").display().to_string()),
        ];
        let node = NodeSpec {
            name: spec.name.clone(),
            labels: spec.labels(),
            network,
            env: env.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            pods_dir: dir.join("pods"),
        };
        let identity = Identity::Node(spec.name.clone());
        let node = Node::start(node, plane.client_of(&identity).await?).await?;
        let mut board = Self {
            node,
            collector_address: format!("{}:{COLLECTOR_PORT}", network.host()),
            metrics_address: format!("{}:{MANAGER_METRICS_PORT}", network.host()),
            tcp_address: format!("tcp://{}:{MANAGER_TCP_PORT}", network.host()),
            kubeconfig: plane.kubeconfig(&Identity::Collector)?.to_owned(),
            logs: run_dir.path().join("logs"),
            collector: None,
            device_manager: None,
            http: HttpClient::new(patience()),
            spec,
            dir,
        };
        if board.spec.collector == CollectorChoice::Run {
            board.start_collector().await?;
        }
        if board.spec.runtime.is_some() {
            board.start_device_manager().await?;
        }
        Ok(board)
    }

    /// The specification of the board.
    #[must_use]
    pub fn spec(&self) -> &BoardSpec {
        &self.spec
    }

    /// Path of the node's folder.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Path of the device manager's socket.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.dir.join("dm0.sock")
    }

    /// The device manager's TCP address, in the form of `FPGA_DEVICE_MANAGERS`.
    #[must_use]
    pub fn tcp_address(&self) -> &str {
        &self.tcp_address
    }

    /// The URL of a path on the collector.
    #[must_use]
    pub fn collector_url(&self, path: &str) -> String {
        format!("http://{}{path}", self.collector_address)
    }

    /// The URL of the device manager's metrics.
    #[must_use]
    pub fn manager_metrics_url(&self) -> String {
        format!("http://{}/metrics", self.metrics_address)
    }

    /// Starts the collector and waits until it is ready.
    ///
    /// # Errors
    /// The collector does not become ready.
    pub async fn start_collector(&mut self) -> Result<()> {
        // `Self::set_disk` limits the size of files, and a signal ends a program at the limit unless the program ignores it.
        let collector = self.process("fpga-collector")?;
        let ignoring = r#"trap "" XFSZ; exec "$0" "$@""#;
        let spec = ProcessSpec { program: "sh".into(), ..collector.clone() }
            .args(["-c", ignoring])
            .arg(collector.program)
            .args(programs::collector_args(
                &self.spec.name,
                &self.collector_address,
                &self.dir.join("checkpoint"),
            ))
            .arg("--kubeconfig")
            .arg(&self.kubeconfig)
            .args(&self.spec.collector_args);
        let process = Process::start(&spec)?;
        process.wait_ready(&self.http, &self.collector_url("/readyz"), patience()).await?;
        self.collector = Some(process);
        Ok(())
    }

    /// Kills the collector, as a crash would.
    pub async fn kill_collector(&mut self) {
        if let Some(collector) = self.collector.take() {
            collector.kill().await;
        }
    }

    /// Fills the disk of the collector, or makes room again.
    ///
    /// # Errors
    /// The collector does not run, or prlimit of util-linux is missing.
    pub fn set_disk(&self, disk: Disk) -> Result<()> {
        let collector = self.collector.as_ref().context("no collector runs")?;
        // Only the soft limit, which may be raised again.
        let limit = match disk {
            Disk::Full => "--fsize=0:",
            Disk::Free => "--fsize=unlimited:",
        };
        let mut prlimit = std::process::Command::new("prlimit");
        let status = prlimit.args(["--pid", &collector.pid().to_string(), limit]).status();
        ensure!(status.context("prlimit of util-linux is missing")?.success(), "prlimit fails");
        Ok(())
    }

    /// Starts the device manager and waits until it listens.
    ///
    /// # Errors
    /// The device manager does not listen in time, or the board has no runtime.
    pub async fn start_device_manager(&mut self) -> Result<()> {
        let runtime = self.spec.runtime.context("this board has no runtime")?;
        let ready = self.dir.join("dm0.ready");
        let _ = std::fs::remove_file(&ready);
        let mut spec = self
            .process("fpga-device-manager")?
            .args(["serve", "--listen"])
            .arg(format!("unix:{}", self.socket().display()))
            .args(["--listen", &self.tcp_address, "--insecure-tcp"])
            .arg("--ready-file")
            .arg(&ready)
            .args(["--runtime", &runtime.argument()?, "--vendor", runtime.vendor(), "--device-id", "dm0"])
            .args(["--metrics-listen", &self.metrics_address])
            .args(["--board", &self.spec.board, "--shell", &self.spec.shell])
            .args(["--slots", &self.spec.slots.to_string()])
            .arg("--reconfiguration-time")
            .arg(format!("{}ms", self.spec.reconfiguration.as_millis()))
            .env(
                "FPGA_INTEL_OPENCL",
                programs::repository().join("build/intel-opencl/lib").display().to_string(),
            );
        if self.spec.collector == CollectorChoice::Run {
            spec = spec.arg("--collector").arg(self.collector_url(""));
        }
        if let Some(bitstreams) = &self.spec.bitstreams {
            spec = spec.arg("--bitstreams").arg(bitstreams);
        }
        for (name, value) in &self.spec.device_manager_env {
            spec = spec.env(name, value);
        }
        let process = Process::start(&spec.args(&self.spec.device_manager_args))?;
        wait::until("the device manager to listen", async || {
            process.check_running()?;
            Ok(ready.exists().then_some(()))
        })
        .await?;
        self.device_manager = Some(process);
        Ok(())
    }

    /// Kills the device manager, as a crash would.
    pub async fn kill_device_manager(&mut self) {
        if let Some(manager) = self.device_manager.take() {
            manager.kill().await;
        }
    }

    fn process(&self, name: &str) -> Result<ProcessSpec> {
        let log = self.logs.join(format!("{}-{name}.log", self.spec.name));
        Ok(ProcessSpec::new(format!("{name} of {}", self.spec.name), programs::built(name)?, log))
    }

    /// Fails with the end of the log if a program that should run has ended.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check_running(&self) -> Result<()> {
        self.collector.iter().chain(&self.device_manager).try_for_each(Process::check_running)
    }

    /// Stops pods, device manager and collector, in this order.
    pub async fn stop(self) {
        self.node.stop().await;
        for process in self.device_manager.into_iter().chain(self.collector) {
            process.stop(STOP).await;
        }
    }
}
