//! A site with everything that Prometheus scrapes: two nodes with boards, the scheduler extender, the router with a
//! function that is called all the time, the registry, and a pool whose jobs never end to come.

mod leases;
mod load;
mod nodes;

use super::LONG;
use fpga_acc::{Config, Pool};
use fpga_emulated_board::{Controls, VARIABLE};
use fpga_test_kit::Kubelet;
use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::{Cluster, Runtime};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::endpoint_slices::EndpointSlices;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::pool::{ManagerOptions, PoolBed, Sharing, TENANTS};
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::prometheus::{Prometheus, Target};
use fpga_tests::testbed::registry::{self, Registry};
use fpga_tests::testbed::router::Router;
use fpga_tests::testbed::valve::Valve;
use fpga_tests::testbed::wait;
use leases::Leases;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use nodes::Files;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::Child;
use tokio::task::JoinSet;

/// The node with the function's board, and the one whose board fails when the test wishes.
pub const NODES: [&str; 2] = ["n1", "n2"];
/// Namespace of the functions.
const TENANT: &str = "default";
/// The functions that pods of the first node may be.
const FUNCTIONS: [Function; 2] = [Function::Sobel, Function::Matmul];
/// An accelerator of the pool's library whose bitstream the pool's manager does not have.
const MISSING: &str = "fft";

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
    /// The way of what the API server sends to the picker.
    pub to_picker: Valve,
    /// The registry.
    pub registry: Registry,
    /// The pool, which has nodes of its own.
    pub pool: PoolBed,
    /// What the board of the pool does.
    pub pool_controls: Controls,
    /// Files that programs read.
    pub files: Files,
    slices: EndpointSlices,
    leases: Leases,
    load: JoinSet<()>,
    _folder: TempDir,
}

impl Site {
    /// Starts all programs, and waits until the function has a replica.
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = Files::new(folder.path());
        let mut cluster = nodes::start_cluster(&files).await;
        cluster.start_leading_scheduler().await.unwrap();
        let (plane, http) = (cluster.plane(), cluster.http().clone());
        registry::install(plane).await.unwrap();
        let controls = Controls::open(&files.controls()).unwrap();
        let plugins = nodes::start_plugins(&cluster, &files);
        let supervisor = nodes::start_supervisor(&cluster, &files).await;
        let to_picker = open_valve(plane).await;
        let kubeconfig = kubeconfig_by(&to_picker, plane, folder.path());
        let router = Router::start_as(plane, &http, &kubeconfig, &[]).await.unwrap();
        let moves = ["--moves", "evict", "--board-grace", "500ms", "--moves-recovery", "3s"];
        let registry = Registry::start(plane, &http, "registry", &moves).await.unwrap();
        let leases = Leases::tell(plane).await;
        let slices = EndpointSlices::keep(plane.client(), TENANT);
        load::deploy_function(&cluster, Function::Sobel).await;
        slices.create_function("sobel").await.unwrap();
        let (pool, pool_controls) = start_pool(&folder.path().join("pool-controls")).await;
        let mut load = JoinSet::new();
        load.spawn(load::call_function(&router, Function::Sobel));
        load.spawn(load::run_jobs(&pool));
        load::do_what_is_refused(&cluster, &router).await;
        Self {
            cluster,
            supervisor,
            controls,
            plugins,
            router,
            to_picker,
            registry,
            pool,
            pool_controls,
            files,
            slices,
            leases,
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
            Target::new(&self.leases.metrics_url()),
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
        load::wait_for_replicas(&self.cluster, "sobel", replicas).await;
    }

    /// Deploys another function beside the first one, on the same board, and waits until the router has it.
    pub async fn add_function(&self, function: Function) {
        load::deploy_function(&self.cluster, function).await;
        self.slices.create_function(function.name()).await.unwrap();
        let known = wait::until_within("the picker to know both functions", LONG, async || {
            let replicas = self.router.picker().metrics(self.cluster.http()).await?;
            Ok((replicas.metric("fpga_picker_replicas") >= 2.0).then_some(()))
        });
        known.await.unwrap();
    }

    /// Calls a function again and again, for ever.
    pub fn call(&self, function: Function) -> impl Future<Output = ()> + Send + use<> {
        load::call_function(&self.router, function)
    }

    /// A connection of a tenant's to the pool.
    pub fn pool_of(&self, tenant: &str) -> Pool {
        let config = Config {
            token_file: Some(self.pool.token_file(tenant)),
            ..Config::of(&self.pool.broker_address()).unwrap()
        };
        Pool::connect(config).unwrap()
    }

    /// Starts a job whose bitstream no board has. It is refused, and ends after half a minute.
    pub fn start_job_without_bitstream(&self) -> Child {
        self.pool.job(TENANTS[1], "office", &[MISSING]).unwrap().stderr(Stdio::null()).spawn().unwrap()
    }

    /// Creates two pods of a Deployment on the first node.
    pub async fn deploy_pair(&self, name: &str) {
        load::deploy_pair(&self.cluster, name).await;
    }

    /// Ends the node plugin of the second node by SIGKILL.
    pub async fn kill_plugin(&self) {
        self.plugins[1].kill().await;
    }

    /// Starts the node plugin of the second node again.
    pub fn restart_plugin(&mut self) {
        self.plugins[1] = nodes::start_plugin(&self.cluster, &self.files, 1);
    }

    /// Starts the part of a kubelet of the second node that its node plugin meets.
    pub fn start_kubelet(&self) -> Kubelet {
        Kubelet::start(self.files.device_plugins(1), &self.files.pod_resources(1))
    }

    /// Ends the manager of the second node's board by SIGKILL, as soon as there is one.
    pub async fn kill_board_manager(&self) {
        let killed = wait::until_within("a manager of the second node's board", LONG, async || {
            let manager = nodes::manager_of(&self.supervisor);
            Ok(manager.filter(|manager| kill(Pid::from_raw(*manager), Signal::SIGKILL).is_ok()))
        });
        let killed = killed.await.unwrap();
        let gone = async || Ok((nodes::manager_of(&self.supervisor) != Some(killed)).then_some(()));
        wait::until_within("the manager to end", LONG, gone).await.unwrap();
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
        let Self { cluster, router, load, slices, leases, .. } = self;
        drop((load, slices, leases));
        router.stop().await;
        cluster.stop().await;
    }
}

/// A way to the API server that a test can shut.
async fn open_valve(plane: &ControlPlane) -> Valve {
    // The API server's certificate is for this address.
    let host = plane.network().control_plane().into();
    let valve = Valve::before(plane.api_server().to_string(), host, 0).await.unwrap();
    valve.open();
    valve
}

/// The kubeconfig of the router, by way of the valve.
fn kubeconfig_by(valve: &Valve, plane: &ControlPlane, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(plane.kubeconfig(&Identity::Router).unwrap()).unwrap();
    let mut kubeconfig: Value = serde_json::from_str(&text).unwrap();
    kubeconfig["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", valve.address()));
    let path = folder.join("picker.kubeconfig");
    std::fs::write(&path, kubeconfig.to_string()).unwrap();
    path
}

/// Starts the broker, and a manager that lends both slots of a board that fails when the test wishes.
async fn start_pool(controls: &Path) -> (PoolBed, Controls) {
    let mut pool = PoolBed::start().await.unwrap();
    let options = ManagerOptions {
        runtime: Runtime::EmulatedBoard.argument().unwrap(),
        // A process that computes for a tenant could be ended with its tasks. A slot is bad before the whole board is
        // called unhealthy.
        args: ["--isolate", "protocol", "--stuck-timeout", "10m"].map(str::to_owned).to_vec(),
        env: vec![(VARIABLE.to_owned(), controls.display().to_string())],
        lacks: Some(MISSING.to_owned()),
    };
    let controls = Controls::open(controls).unwrap();
    pool.start_manager_as(&Sharing { lent: 2, ..Sharing::default() }, &options).await.unwrap();
    (pool, controls)
}
