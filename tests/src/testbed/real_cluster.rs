//! What an operator has: real nodes with boards, and our images on them, installed by the chart through Helm.

use super::cluster::Runtime;
use super::control_plane::{ControlPlane, SchedulerConfig};
use super::helm::{NAMESPACE, helm};
use super::http_client::HttpClient;
use super::identity::Identity;
use super::programs::{built, repository};
use super::real_node::{
    ClusterDns, Image, KubernetesService, ReadyEndpoints, RealNode, RealNodeSpec, RunMount, ServiceProxy,
    shipped_images,
};
use super::{restricted, wait};
use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use std::net::SocketAddr;
use std::time::Duration;

/// Longest time from a change by Helm to ready pods.
const ROLL_OUT: Duration = Duration::from_secs(300);
/// The folder of a node with bitstreams, as the chart has it.
const BITSTREAMS: &str = "/var/lib/kube-fpga/bitstreams";
/// Name of the release.
const RELEASE: &str = "kube-fpga";
/// Port of the extender for people.
const EXTENDER_PORT: u16 = 9465;
/// Port of the test bed by which the router is called.
const ROUTER_PORT: u16 = 8088;
/// Port of the supervisor of device managers for metrics.
const MANAGERS_PORT: u16 = 9462;
const CHART: &str = "manifests/chart";
/// Tests read at the ports for people as anyone; end_to_end/readers.rs has who else may read there.
const VALUES: [&str; 4] = [
    "--values",
    "manifests/values/pocl.yaml",
    "--set",
    // The chart names Envoy by a digest, which the tests' own image hasn't: `real_node::envoy_image`.
    "readers.access=anyone,router.envoy.image=localhost/envoy:test",
];

/// The specification of a cluster of real nodes.
#[derive(Debug, Clone)]
pub struct RealClusterSpec {
    /// Name of each node, and whether programs below its `/run` can be executed.
    pub nodes: Vec<(String, RunMount)>,
    /// Images on the nodes besides ours.
    pub images: Vec<Image>,
    /// Values of the chart that differ from those for PoCL, such as `scheduler.replicas=1`.
    pub values: Vec<String>,
}

/// A running cluster with the chart. Dropping it kills all programs.
pub struct RealCluster {
    // Fields are dropped in this order: nodes end before the API server that they talk to.
    nodes: Vec<RealNode>,
    _service: KubernetesService,
    _dns: ClusterDns,
    endpoints: ReadyEndpoints,
    plane: ControlPlane,
    http: HttpClient,
}

impl RealCluster {
    /// Starts the control plane and the nodes, installs the chart, and waits until all of its pods are ready.
    ///
    /// # Errors
    /// This machine can't have nodes, and the error names all that is missing; or a program does not start.
    pub async fn start(spec: RealClusterSpec) -> Result<Self> {
        Self::start_with(spec, async |_: &ControlPlane| Ok(Vec::new())).await
    }

    /// Like [`Self::start`]. Before the chart is installed, `prepare` makes what its values name, and returns further
    /// values.
    ///
    /// # Errors
    /// As [`Self::start`], or the error of `prepare`.
    pub async fn start_with(
        spec: RealClusterSpec,
        prepare: impl AsyncFnOnce(&ControlPlane) -> Result<Vec<String>>,
    ) -> Result<Self> {
        let mut cluster = Self::without_nodes(&spec).await?;
        let more = prepare(&cluster.plane).await?;
        let values = spec.values.iter().chain(&more).flat_map(|value| ["--set", value]);
        let arguments: Vec<&str> = ["install", RELEASE, CHART, "--create-namespace"]
            .into_iter()
            .chain(VALUES)
            .chain(values)
            .collect();
        cluster.helm(&arguments).await?;
        cluster.nodes = nodes_of(spec, &cluster.plane).await?;
        futures::future::try_join_all(cluster.nodes.iter().map(|node| prepare_node(node, &cluster.plane)))
            .await?;
        cluster.wait_rolled_out().await?;
        Ok(cluster)
    }

    /// Starts the control plane and the nodes, which have our images. The chart is not installed, no node has a label of ours, and the
    /// values of `spec` are not used.
    ///
    /// # Errors
    /// As [`Self::start`].
    pub async fn start_without_chart(spec: RealClusterSpec) -> Result<Self> {
        let mut cluster = Self::without_nodes(&spec).await?;
        cluster.nodes = nodes_of(spec, &cluster.plane).await?;
        Ok(cluster)
    }

    /// Starts the control plane for these nodes.
    async fn without_nodes(spec: &RealClusterSpec) -> Result<Self> {
        RealNode::check_possible()?;
        let names: Vec<&str> = spec.nodes.iter().map(|(name, _)| name.as_str()).collect();
        let mut plane = ControlPlane::start(&names).await?;
        plane.start_scheduler(&SchedulerConfig::without_extender()).await?;
        let service = KubernetesService::start(&plane)?;
        let endpoints = ReadyEndpoints::watch(plane.client()).await?;
        let dns = ClusterDns::start(&plane, endpoints.clone())?;
        let http = HttpClient::new(Duration::from_secs(60));
        Ok(Self { nodes: Vec::new(), _service: service, _dns: dns, endpoints, plane, http })
    }

    /// Runs Helm as the administrator. Returns its output.
    ///
    /// # Errors
    /// Helm fails; the error has its output.
    pub async fn helm(&self, arguments: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new(helm()?)
            .args(arguments)
            .args(["--namespace", NAMESPACE])
            .current_dir(repository())
            .env("KUBECONFIG", self.plane.kubeconfig(&Identity::Admin)?)
            .kill_on_drop(true)
            .output()
            .await?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        ensure!(output.status.success(), "helm {arguments:?}: {text}");
        Ok(text)
    }

    /// Runs our plugin of kubectl as the administrator. Returns its output.
    ///
    /// # Errors
    /// The plugin fails; the error has its output.
    pub async fn kubectl_fpga(&self, arguments: &[&str]) -> Result<String> {
        let output = tokio::process::Command::new(built("kubectl-fpga")?)
            .args(arguments)
            .env_clear()
            .env("KUBECONFIG", self.plane.kubeconfig(&Identity::Admin)?)
            .kill_on_drop(true)
            .output()
            .await?;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl fpga {arguments:?}: {error}");
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Upgrades the release to these values, and waits until all pods are those of the new revision and ready.
    ///
    /// # Errors
    /// Helm fails, or the pods do not become ready.
    pub async fn upgrade(&self, values: &[&str]) -> Result<()> {
        let values = values.iter().flat_map(|value| ["--set", value]);
        let arguments: Vec<&str> =
            ["upgrade", RELEASE, CHART].into_iter().chain(VALUES).chain(values).collect();
        self.helm(&arguments).await?;
        self.wait_rolled_out().await
    }

    /// Goes back to the revision before, and waits like [`Self::upgrade`].
    ///
    /// # Errors
    /// Helm fails, or the pods do not become ready.
    pub async fn rollback(&self) -> Result<()> {
        self.helm(&["rollback", RELEASE]).await?;
        self.wait_rolled_out().await
    }

    /// Uninstalls the release.
    ///
    /// # Errors
    /// Helm fails, for example because pods hold boards.
    pub async fn uninstall(&self) -> Result<()> {
        self.helm(&["uninstall", RELEASE]).await.map(drop)
    }

    /// Waits until every pod of the chart is ready and of the newest revision.
    ///
    /// # Errors
    /// The pods do not become ready.
    pub async fn wait_rolled_out(&self) -> Result<()> {
        let client = self.plane.client();
        let daemon_sets: Api<DaemonSet> = Api::namespaced(client.clone(), NAMESPACE);
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
        wait::until_within("the chart's pods to be ready", ROLL_OUT, async || {
            self.check_running()?;
            let nodes = i32::try_from(self.nodes.len())?;
            let sets = daemon_sets.list(&ListParams::default()).await?.items;
            let deployments = deployments.list(&ListParams::default()).await?.items;
            if sets.len() == 3
                && sets.iter().all(|set| is_rolled_out(set, nodes))
                && deployments.iter().all(has_rolled_out)
            {
                return Ok(Some(()));
            }
            let states = self.pods().list(&ListParams::default()).await?.items;
            let states = states.iter().map(|pod| format!("{:?}: {}", pod.metadata.name, containers_of(pod)));
            bail!("{}", states.collect::<Vec<_>>().join("\n"))
        })
        .await
    }

    /// The chart's pods.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.plane.client().clone(), NAMESPACE)
    }

    /// The URLs of a path on all replicas of the extender, for people.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn extender_urls(&self, path: &str) -> Result<Vec<String>> {
        let addresses = self.addresses("fpga-scheduler-extender").await?;
        Ok(addresses
            .into_iter()
            .map(|(_, address)| format!("http://{address}:{EXTENDER_PORT}{path}"))
            .collect())
    }

    /// The URL of the metrics of the device managers of each node, by the node's name.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn managers_metrics_urls(&self) -> Result<Vec<(String, String)>> {
        let addresses = self.addresses("fpga-device-manager").await?.into_iter();
        Ok(addresses.map(|(node, ip)| (node, format!("http://{ip}:{MANAGERS_PORT}/metrics"))).collect())
    }

    /// Listens for calls of functions, and passes them on to the chart's router, which must be enabled.
    ///
    /// # Errors
    /// The address can't be listened at.
    pub async fn router(&self) -> Result<ServiceProxy> {
        let address = SocketAddr::from((self.plane.network().control_plane(), ROUTER_PORT));
        ServiceProxy::start(address, self.endpoints.clone(), NAMESPACE, "fpga-router", "http").await
    }

    /// Node and address of the pods of one of our programs.
    ///
    /// # Errors
    /// The API server does not answer.
    pub async fn addresses(&self, program: &str) -> Result<Vec<(String, String)>> {
        let of_program = ListParams::default().labels(&format!("app.kubernetes.io/name={program}"));
        let pods = self.pods().list(&of_program).await?.items.into_iter();
        Ok(pods.filter_map(|pod| Some((pod.spec?.node_name?, pod.status?.pod_ip?))).collect())
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[RealNode] {
        &self.nodes
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

    /// Fails with the end of the log if a program that should run has ended.
    ///
    /// # Errors
    /// A program has ended.
    pub fn check_running(&self) -> Result<()> {
        self.plane.check_running()?;
        self.nodes.iter().try_for_each(RealNode::check_running)
    }

    /// Stops all programs.
    pub async fn stop(self) {
        let Self { nodes, plane, .. } = self;
        futures::future::join_all(nodes.into_iter().map(RealNode::stop)).await;
        plane.stop().await;
    }
}

/// Starts the nodes with our images and those of `spec`, and waits until pods can be placed on them.
async fn nodes_of(spec: RealClusterSpec, plane: &ControlPlane) -> Result<Vec<RealNode>> {
    let images = [shipped_images()?, spec.images].concat();
    let starts = spec.nodes.into_iter().zip(0..).map(|((name, run_mount), index)| {
        let spec = RealNodeSpec { run_mount, images: images.clone(), ..RealNodeSpec::new(&name, index) };
        async move {
            let node = RealNode::start(spec, plane).await?;
            node.wait_ready().await.map(|()| node)
        }
    });
    futures::future::try_join_all(starts).await
}

/// Makes the node one of those that the PoCL values of the chart are for, with bitstreams.
async fn prepare_node(node: &RealNode, plane: &ControlPlane) -> Result<()> {
    restricted::install_bitstreams(Runtime::Pocl, &node.machine().path(BITSTREAMS))
        .context("can't install bitstreams")?;
    let nodes: Api<Node> = Api::all(plane.client().clone());
    let labels = json!({"metadata": {"labels": {"fpga-scheduling.io/fpga-vendor": Runtime::Pocl.vendor()}}});
    nodes.patch(node.name(), &PatchParams::default(), &Patch::Merge(labels)).await?;
    Ok(())
}

fn is_rolled_out(set: &DaemonSet, nodes: i32) -> bool {
    set.status.as_ref().is_some_and(|status| {
        status.observed_generation == set.metadata.generation
            && status.desired_number_scheduled == nodes
            && status.updated_number_scheduled == Some(nodes)
            && status.number_available == Some(nodes)
    })
}

fn has_rolled_out(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas);
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && [status.replicas, status.updated_replicas, status.available_replicas] == [wanted; 3]
    })
}

/// What a pod's containers wait for or ended with.
fn containers_of(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return "no status".into() };
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let states = containers
        .map(|container| format!("{} ready={} {:?}", container.name, container.ready, container.state));
    states.collect::<Vec<_>>().join("; ")
}
