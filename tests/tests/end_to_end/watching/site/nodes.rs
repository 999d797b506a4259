//! The nodes of the site: one with the function's board, and one whose board fails when the test wishes, whose managers a
//! supervisor keeps.

use super::{FUNCTIONS, NODES, TENANT};
use crate::watching::LONG;
use fpga_emulated_board::VARIABLE;
use fpga_test_kit::Authority;
use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::{BoardSpec, Cluster, ClusterSpec, ExtenderAway, NodeCache, Runtime};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::{artifacts, programs};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest time between two writes of a node's annotation.
const HEARTBEAT: &str = "3s";
/// Time for which the function's board is reconfigured: longer than a call of a function takes.
const RECONFIGURATION: Duration = Duration::from_millis(300);
/// Port of a node plugin's metrics.
const PLUGIN_PORT: u16 = 9467;
/// The name that the supervisor gives the board of the second node.
const BOARD: &str = "emulated-0";

/// The folders and files of the nodes.
#[derive(Debug, Clone)]
pub struct Files(PathBuf);

impl Files {
    pub fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    /// The extender's settings.
    pub fn settings(&self) -> PathBuf {
        self.0.join("settings")
    }

    /// The extender's certificate.
    pub fn certificate(&self) -> PathBuf {
        self.0.join("extender.pem")
    }

    /// The controls of the board of the second node.
    pub fn controls(&self) -> PathBuf {
        self.0.join("controls")
    }

    /// The library of the runtime of the second node, a link.
    pub fn runtime(&self) -> PathBuf {
        self.0.join("libruntime.so")
    }

    /// The bitstreams of the second node.
    pub fn bitstreams(&self) -> PathBuf {
        self.0.join("bitstreams")
    }

    /// The folder of the managers' sockets of the second node.
    pub fn managers(&self) -> PathBuf {
        self.run(1).join("managers")
    }

    /// Issues the extender's certificate, which lasts until a day.
    pub fn issue_certificate_until(&self, day: (i32, u8, u8)) {
        Authority::new(&self.0, "streams").issue_until("extender", &["127.0.0.1"], day);
    }

    /// Issues the extender's certificate.
    pub fn issue_certificate(&self) {
        Authority::new(&self.0, "streams").issue("extender", &["127.0.0.1"]);
    }

    /// Links the runtime of the second node to the emulated board.
    pub fn install_runtime(&self) {
        std::os::unix::fs::symlink(Runtime::EmulatedBoard.argument().unwrap(), self.runtime()).unwrap();
    }

    /// The folder of the kubelet of a node for its device plugins.
    pub fn device_plugins(&self, node: usize) -> PathBuf {
        self.folder(&format!("device-plugins-{node}"))
    }

    /// The folder of the kubelet of a node that tells of pods' resources.
    pub fn pod_resources(&self, node: usize) -> PathBuf {
        self.folder(&format!("pod-resources-{node}"))
    }

    /// The folder that node plugin and managers of a node share.
    fn run(&self, node: usize) -> PathBuf {
        self.0.join(format!("run-{node}"))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Makes an empty folder, and returns its path.
    fn folder(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    }
}

/// The token of a function's pods.
pub fn token_of(function: Function) -> String {
    format!("a-token-of-the-workload-{function}")
}

/// The URL of the metrics of a node's plugin.
pub fn plugin_metrics_url(plane: &ControlPlane, node: usize) -> String {
    format!("http://{}:{PLUGIN_PORT}/metrics", plane.network().node(u8::try_from(node).unwrap()).host())
}

/// The process of the manager of the second node's board; `None` while there is none.
pub fn manager_of(supervisor: &Process) -> Option<i32> {
    let pid = supervisor.pid();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok()?;
    // The supervisor has another child while it looks for devices.
    children.split_whitespace().filter_map(|child| child.parse().ok()).find(|child: &i32| {
        let command = std::fs::read(format!("/proc/{child}/cmdline")).unwrap_or_default();
        command.split(|byte| *byte == 0).any(|argument| argument == BOARD.as_bytes())
    })
}

/// Starts control plane, extender, collectors, and the manager of the first node.
pub async fn start_cluster(files: &Files) -> Cluster {
    let runtime = Runtime::from_env().unwrap();
    // As the node plugin names the workload.
    let tokens = files.folder(&format!("tokens/{TENANT}"));
    for function in FUNCTIONS {
        std::fs::write(tokens.join(format!("{function}@1")), token_of(function)).unwrap();
    }
    // States are stale after three heartbeats.
    let collector_args =
        ["--heartbeat", HEARTBEAT, "--min-write-interval", "500ms"].map(str::to_owned).to_vec();
    let function = BoardSpec {
        collector_args: collector_args.clone(),
        bitstreams: Some(artifacts::bitstreams(runtime).unwrap()),
        device_manager_args: ["--tokens".to_owned(), files.path("tokens")].to_vec(),
        slots: 1,
        reconfiguration: RECONFIGURATION,
        ..BoardSpec::new(NODES[0], Some(runtime))
    };
    // A supervisor has its managers.
    let failing = BoardSpec { collector_args, ..BoardSpec::new(NODES[1], None) };
    files.issue_certificate();
    std::fs::write(files.settings(), "{}\n").unwrap();
    let extender_args = [
        ["--config".to_owned(), files.path("settings")],
        ["--stream-listen".to_owned(), "127.0.0.1:0".to_owned()],
        ["--stream-tls-cert".to_owned(), files.path("extender.pem")],
        ["--stream-tls-key".to_owned(), files.path("extender.key")],
        ["--stream-service-account".to_owned(), "kube-fpga/fpga-collector".to_owned()],
    ];
    Cluster::start(ClusterSpec {
        boards: vec![function, failing],
        weights: "1-2-2".to_owned(),
        node_cache: NodeCache::Capable,
        extender_away: ExtenderAway::Wait,
        extender_args: extender_args.concat(),
    })
    .await
    .unwrap()
}

/// Starts the supervisor of the second node, which has one emulated board, and waits until the board takes sessions.
pub async fn start_supervisor(cluster: &Cluster, files: &Files) -> Process {
    let board = &cluster.boards[1];
    let log = cluster.logs().join("supervisor.log");
    let metrics = board.manager_metrics_url();
    let address = metrics.trim_start_matches("http://").trim_end_matches("/metrics");
    files.folder("bitstreams");
    files.install_runtime();
    let spec = ProcessSpec::new("supervisor", programs::built("fpga-device-manager").unwrap(), log)
        .args(["supervise", "--kind", "emulated"])
        .arg("--runtime")
        .arg(files.runtime())
        .arg("--run-dir")
        .arg(files.run(1))
        .args(["--look-interval", "500ms", "--metrics-listen", address, "--"])
        .args(["--isolate", "protocol", "--stuck-timeout", "2s", "--vendor", "emulated"])
        .args(["--board", "emulated", "--shell", "1.0", "--slots", "1"])
        .args(["--collector", &board.collector_url("")])
        .arg("--bitstreams")
        .arg(files.bitstreams())
        .env(VARIABLE, files.controls().display().to_string());
    let supervisor = Process::start(&spec).unwrap();
    supervisor.wait_ready(cluster.http(), &metrics.replace("/metrics", "/readyz"), LONG).await.unwrap();
    supervisor
}

/// Starts the node plugins.
pub fn start_plugins(cluster: &Cluster, files: &Files) -> Vec<Process> {
    // Where a node plugin looks for the manager of the first node, which has no supervisor.
    let manager = files.folder("run-0/managers/dm0");
    std::os::unix::fs::symlink(cluster.boards[0].socket(), manager.join("dm.sock")).unwrap();
    (0..NODES.len()).map(|node| start_plugin(cluster, files, node)).collect()
}

/// Starts the node plugin of a node. It waits for a kubelet.
pub fn start_plugin(cluster: &Cluster, files: &Files, node: usize) -> Process {
    let plane = cluster.plane();
    let host = plane.network().node(u8::try_from(node).unwrap()).host();
    let program = "fpga-node-plugin";
    let log = plane.run_dir().log(&format!("plugin-{node}"));
    let spec = ProcessSpec::new(program, programs::built(program).unwrap(), log)
        .args(["--node-name", NODES[node], "--collector", &cluster.boards[node].collector_url("")])
        .arg("--run-dir")
        .arg(files.run(node))
        .arg("--plugin-dir")
        .arg(files.folder(&format!("plugin-{node}")))
        .arg("--device-plugins-dir")
        .arg(files.device_plugins(node))
        .arg("--pod-resources")
        .arg(files.pod_resources(node).join("kubelet.sock"))
        .args(["--bitstream-store-size", "16MiB", "--bitstream-hosts", "files.example"])
        .arg("--library")
        .arg(programs::built("libfpga_opencl_icd.so").unwrap())
        .args(["--metrics-listen", &format!("{host}:{PLUGIN_PORT}"), "--shutdown-delay", "0s"])
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(&Identity::NodePlugin).unwrap());
    Process::start(&spec).unwrap()
}
