//! A site with everything that Prometheus scrapes: two nodes with boards, the scheduler extender, the router with a
//! function that is called all the time, the registry, and a pool whose jobs never end to come.

mod load;
mod nodes;

use super::LONG;
use fpga_emulated_board::Controls;
use fpga_tests::testbed::cluster::Cluster;
use fpga_tests::testbed::endpoint_slices::EndpointSlices;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::pool::{PoolBed, Sharing};
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::prometheus::{Prometheus, Target};
use fpga_tests::testbed::registry::{self, Registry};
use fpga_tests::testbed::router::Router;
use fpga_tests::testbed::wait;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nodes::Files;
use serde_json::Value;
use tempfile::TempDir;
use tokio::task::JoinSet;

/// The node with the function's board, and the one whose board fails when the test wishes.
pub const NODES: [&str; 2] = ["n1", "n2"];
/// Namespace of the function, and the token of its pods.
const TENANT: &str = "default";
const TOKEN: &str = "a-token-of-the-workload-sobel";

/// The running site.
pub struct Site {
    /// Control plane, extender, and the nodes' collectors; the device manager of the first node.
    pub cluster: Cluster,
    /// The supervisor of the managers of the second node.
    supervisor: Process,
    /// What the board of the second node does.
    pub controls: Controls,
    /// The nodes' plugins.
    plugins: Vec<Process>,
    /// Envoy and the endpoint picker.
    pub router: Router,
    /// The registry.
    pub registry: Registry,
    /// The pool, which has nodes of its own.
    pub pool: PoolBed,
    /// Files that programs read.
    pub files: Files,
    slices: EndpointSlices,
    load: JoinSet<()>,
    _folder: TempDir,
}

impl Site {
    /// Starts all programs, and waits until the function has a replica.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(folder.path());
        let cluster = nodes::start_cluster(&files).await;
        let (plane, http) = (cluster.plane(), cluster.http().clone());
        registry::install(plane).await.unwrap();
        let controls = Controls::open(&files.controls()).unwrap();
        let plugins = nodes::start_plugins(&cluster, &files);
        let supervisor = nodes::start_supervisor(&cluster, &files).await;
        let router = Router::start(plane, &http, &[]).await.unwrap();
        let registry = Registry::start(plane, &http, "registry", &[]).await.unwrap();
        let slices = EndpointSlices::keep(plane.client(), TENANT);
        load::deploy_function(&cluster).await;
        slices.create_function("sobel").await.unwrap();
        let mut pool = PoolBed::start().await.unwrap();
        pool.start_manager_with(&Sharing { lent: 2, ..Sharing::default() }).await.unwrap();
        let mut load = JoinSet::new();
        load.spawn(load::call_function(&router));
        load.spawn(load::run_jobs(&pool));
        load::do_what_is_refused(&cluster, &router).await;
        Self {
            cluster,
            supervisor,
            controls,
            plugins,
            router,
            registry,
            pool,
            files,
            slices,
            load,
            _folder: folder,
        }
    }

    /// What Prometheus scrapes, with the labels that the chart's PodMonitors give the metrics.
    fn targets(&self) -> Vec<Target> {
        let plane = self.cluster.plane();
        let of_pod = |url: &str, pod: &str| Target::new(url).label("pod", pod);
        let mut targets = vec![
            of_pod(&self.cluster.extender_url("/metrics"), "fpga-scheduler-extender"),
            of_pod(&self.router.metrics_url(), "fpga-router"),
            of_pod(&self.router.envoy_metrics_url(), "fpga-router"),
            of_pod(&self.registry.metrics_url(), "fpga-registry"),
            of_pod(&self.pool.metrics_url(), "fpga-pool"),
        ];
        for (index, board) in self.cluster.boards.iter().enumerate() {
            let of_node = |url: &str| Target::new(url).label("node", NODES[index]);
            // The first node's manager has no supervisor, which would name its board.
            let manager = of_node(&board.manager_metrics_url());
            targets.push(if index == 0 { manager.label("board", "dm0") } else { manager });
            targets.push(of_node(&board.collector_url("/metrics")));
            targets.push(of_node(&nodes::plugin_metrics_url(plane, index)));
        }
        targets
    }

    /// Starts a Prometheus that scrapes all programs, without the manager of the pool, which has neither collector nor node
    /// plugin.
    pub async fn scrape_nodes(&self, rules: &Value) -> Prometheus {
        self.scrape(&self.targets(), rules).await
    }

    /// Starts a Prometheus that scrapes all programs.
    pub async fn scrape_all(&self, rules: &Value) -> Prometheus {
        let mut targets = self.targets();
        let lent = Target::new(&self.pool.manager_metrics_url(0));
        targets.push(lent.label("node", "node-0").label("board", "lent-0"));
        self.scrape(&targets, rules).await
    }

    async fn scrape(&self, targets: &[Target], rules: &Value) -> Prometheus {
        let plane = self.cluster.plane();
        let ip = plane.network().control_plane();
        Prometheus::start(ip, plane.run_dir(), self.cluster.http(), targets, rules).await.unwrap()
    }

    /// Gives the function so many replicas.
    pub async fn scale_function(&self, replicas: i32) {
        let replicas_flag = format!("--replicas={replicas}");
        kubectl(self.cluster.plane(), &["scale", "deployment/sobel", &replicas_flag]).await.unwrap();
        load::wait_for_replicas(&self.cluster, replicas).await;
    }

    /// Ends the node plugin of the second node by SIGKILL.
    pub async fn kill_plugin(&self) {
        self.plugins[1].kill().await;
    }

    /// Starts the node plugin of the second node again.
    pub fn restart_plugin(&mut self) {
        self.plugins[1] = nodes::start_plugin(&self.cluster, &self.files, 1);
    }

    /// Ends the manager of the second node's board by SIGKILL, as soon as there is one.
    pub async fn kill_board_manager(&self) {
        let killed = wait::until("a manager of the second node's board", LONG, async || {
            let manager = nodes::manager_of(&self.supervisor);
            Ok(manager.filter(|manager| kill(Pid::from_raw(*manager), Signal::SIGKILL).is_ok()))
        });
        let killed = killed.await.unwrap();
        let gone = async || Ok((nodes::manager_of(&self.supervisor) != Some(killed)).then_some(()));
        wait::until("the manager to end", LONG, gone).await.unwrap();
    }

    /// Fails if a program has ended.
    pub fn check_running(&self) {
        self.cluster.check_running().unwrap();
        self.router.check_running().unwrap();
        self.registry.process().check_running().unwrap();
        self.pool.check_running().unwrap();
        self.plugins.iter().chain([&self.supervisor]).try_for_each(Process::check_running).unwrap();
    }

    /// Ends all programs.
    pub async fn stop(self) {
        let Self { cluster, router, load, slices, .. } = self;
        drop((load, slices));
        router.stop().await;
        cluster.stop().await;
    }
}
