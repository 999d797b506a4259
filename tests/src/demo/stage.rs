//! The cluster on which the demo runs: modelled nodes, whose pods are processes of this machine, or real ones.

use crate::functions::Function;
use crate::testbed::artifacts;
use crate::testbed::cluster::{BoardSpec, Cluster, ClusterSpec, ExtenderAway, NodeCache, Runtime};
use crate::testbed::endpoint_slices::EndpointSlices;
use crate::testbed::http_client::HttpClient;
use crate::testbed::identity::Identity;
use crate::testbed::network::Network;
use crate::testbed::real_cluster::{RealCluster, RealClusterSpec};
use crate::testbed::real_node::{Image, RealNode, RunMount, ServiceProxy, envoy_image};
use crate::testbed::restricted::{self, RestrictedPod};
use crate::testbed::router::Router;
use crate::testbed::web::{Parts, Web};
use crate::testbed::workload::Workload;
use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::PostParams;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::path::PathBuf;
use std::time::Duration;

/// Names of the nodes.
const NODES: [&str; 3] = ["node-a", "node-b", "node-c"];
/// Real nodes are two: each of them is a whole kubelet and containerd.
const REAL_NODES: usize = 2;
/// Slots of a modelled node's board: fewer than there are functions, so that a bitstream must give way to another.
const SLOTS: u32 = 2;
/// Port of OTLP over HTTP.
const OTLP_PORT: u16 = 4318;
/// With it functions tell how long their kernels waited for a slot.
const PROFILE: (&str, &str) = ("OCL_PROFILE", "1");
/// The window of usage that the chart's collectors have.
const CHART_WINDOW: Duration = Duration::from_secs(300);

/// The kind of nodes of a demo.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Nodes {
    /// Stand-ins for kubelets, whose pods are processes of this machine; any user can run them.
    Modelled,
    /// Kubelets with containerd, whose pods are containers of images; needs root.
    Real,
}

/// How requests get to a function's replicas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Routing {
    /// Envoy and the endpoint picker choose the replica.
    Router,
    /// Each ready replica in turn.
    InTurn,
}

/// What a stage needs to know.
#[derive(Debug, Clone)]
pub(super) struct StageSpec {
    pub nodes: Nodes,
    pub runtime: Runtime,
    pub weights: String,
    pub routing: Routing,
    /// The window of usage, where it can be chosen.
    pub window: Duration,
}

/// A running cluster. Dropping it kills all programs.
pub(super) enum Stage {
    Modelled {
        cluster: Box<Cluster>,
        router: Option<Box<(Router, EndpointSlices)>>,
        functions: PathBuf,
        bitstreams: PathBuf,
        runtime: Runtime,
        /// Where the page takes traces.
        traces: Network,
    },
    Real {
        cluster: Box<RealCluster>,
        router: Option<ServiceProxy>,
        images: Vec<Image>,
    },
}

impl StageSpec {
    /// Fails if this machine can't have such a stage.
    pub fn check(&self) -> Result<()> {
        if self.nodes == Nodes::Real {
            ensure!(
                self.runtime == Runtime::Pocl,
                "the demo on real nodes has an image for PoCL only; write RUNTIME=pocl, or NODES=modelled"
            );
            RealNode::check_possible()?;
        }
        Ok(())
    }

    /// The boards, in words.
    pub fn describe(&self) -> String {
        let number = if self.nodes == Nodes::Real { REAL_NODES } else { NODES.len() };
        let (kind, slots) = if self.nodes == Nodes::Real { ("real nodes", 4) } else { ("nodes", SLOTS) };
        format!(
            "{number} {kind} with a board each ({}, {slots} slots, 10 ms per reconfiguration)",
            self.runtime
        )
    }

    /// The window of usage.
    pub fn window(&self) -> Duration {
        if self.nodes == Nodes::Real { CHART_WINDOW } else { self.window }
    }

    /// Starts the programs, and waits until pods can be placed.
    pub async fn start(&self) -> Result<Stage> {
        match self.nodes {
            Nodes::Modelled => self.start_modelled().await,
            Nodes::Real => self.start_real().await,
        }
    }

    async fn start_modelled(&self) -> Result<Stage> {
        let (functions, bitstreams) = (artifacts::functions()?, artifacts::bitstreams(self.runtime)?);
        // The page takes the traces.
        let traces = Network::claim()?;
        let otlp = format!("http://{}:{OTLP_PORT}", traces.control_plane());
        let board = |name| BoardSpec {
            device_manager_args: ["--otlp-endpoint", otlp.as_str()].map(str::to_owned).to_vec(),
            bitstreams: Some(bitstreams.clone()),
            slots: SLOTS,
            collector_args: collector_args(self.window),
            ..BoardSpec::new(name, Some(self.runtime))
        };
        let cluster = Cluster::start(ClusterSpec {
            boards: NODES.map(board).to_vec(),
            weights: self.weights.clone(),
            node_cache: NodeCache::Capable,
            extender_away: ExtenderAway::Wait,
            extender_args: Vec::new(),
        })
        .await?;
        let router = match self.routing {
            Routing::Router => {
                let slices = EndpointSlices::keep(cluster.plane().client(), "default");
                Some(Box::new((
                    Router::start(cluster.plane(), cluster.http(), &["--otlp-endpoint", &otlp]).await?,
                    slices,
                )))
            }
            Routing::InTurn => None,
        };
        let cluster = Box::new(cluster);
        Ok(Stage::Modelled { cluster, router, functions, bitstreams, runtime: self.runtime, traces })
    }

    async fn start_real(&self) -> Result<Stage> {
        let images = Function::WITH_ONE_KERNEL
            .into_iter()
            .map(restricted::function_image)
            .collect::<Result<Vec<_>>>()?;
        let mut values = vec![format!("extender.config={}", extender_config(&self.weights)?)];
        let mut all_images = images.clone();
        if self.routing == Routing::Router {
            // One picker counts all requests, as on modelled nodes.
            values.extend(["router.enabled=true", "router.replicas=1"].map(str::to_owned));
            all_images.push(envoy_image()?);
        }
        let cluster = RealCluster::start(RealClusterSpec {
            nodes: NODES
                .iter()
                .take(REAL_NODES)
                .map(|name| ((*name).to_owned(), RunMount::Executable))
                .collect(),
            images: all_images,
            values,
        })
        .await?;
        restricted::namespace(cluster.plane().client(), Stage::REAL_NAMESPACE).await?;
        let router = match self.routing {
            Routing::Router => Some(cluster.router().await?),
            Routing::InTurn => None,
        };
        Ok(Stage::Real { cluster: Box::new(cluster), router, images })
    }
}

impl Stage {
    /// Namespace of the functions on real nodes; it enforces Pod Security `restricted`.
    const REAL_NAMESPACE: &str = "functions";

    /// A Deployment of a function that asks for a board.
    pub fn deployment(&self, function: Function, replicas: u32) -> Result<Deployment> {
        match self {
            Self::Modelled { functions, bitstreams, runtime, .. } => {
                let program = functions.join(function.name());
                let bitstream = bitstreams.join(format!("{function}.bitstream"));
                let workload = Workload::function(function.name(), &program, &bitstream)
                    .requires("fpga-vendor", runtime.vendor())
                    .env(PROFILE.0, PROFILE.1);
                Ok(serde_json::from_value(workload.deployment(replicas))?)
            }
            Self::Real { images, .. } => {
                let mut pairs = Function::WITH_ONE_KERNEL.into_iter().zip(images);
                let (_, image) =
                    pairs.find(|(of, _)| *of == function).context("a function without an image")?;
                RestrictedPod::function(function.name(), function, image.name())
                    .annotation("fpga-scheduling.io/bitstreams", function.name())
                    .env(PROFILE.0, PROFILE.1)
                    .deployment(replicas)
            }
        }
    }

    /// The nodes as the extender knows them; `Null` if no extender answers.
    pub async fn known_nodes(&self) -> Result<Value> {
        for url in self.extender_urls("/nodes").await? {
            if let Ok(answer) = self.http().get(&url).await
                && answer.status.is_success()
            {
                return answer.json();
            }
        }
        Ok(Value::Null)
    }

    /// The extender's explanation of a pod's placement; `None` if no replica remembers the pod.
    pub async fn explanation(&self, pod: &str) -> Result<Option<Value>> {
        let path = format!("/explain/{}/{pod}", self.namespace());
        for url in self.extender_urls(&path).await? {
            if let Ok(answer) = self.http().get(&url).await
                && answer.status.is_success()
            {
                return Ok(Some(answer.json()?));
            }
        }
        Ok(None)
    }

    async fn extender_urls(&self, path: &str) -> Result<Vec<String>> {
        match self {
            Self::Modelled { cluster, .. } => Ok(vec![cluster.extender_url(path)]),
            Self::Real { cluster, .. } => cluster.extender_urls(path).await,
        }
    }

    /// Name of each node, and the URL of its device managers' metrics.
    pub async fn managers_metrics_urls(&self) -> Result<Vec<(String, String)>> {
        match self {
            Self::Modelled { cluster, .. } => {
                let boards = cluster.boards.iter();
                Ok(boards.map(|board| (board.spec().name.clone(), board.manager_metrics_url())).collect())
            }
            Self::Real { cluster, .. } => cluster.managers_metrics_urls().await,
        }
    }

    /// The functions' Deployments.
    pub fn deployments(&self) -> Api<Deployment> {
        Api::namespaced(self.client().clone(), self.namespace())
    }

    /// Creates the Service by which the router finds a function's replicas.
    pub async fn create_service(&self, function: Function) -> Result<()> {
        match self {
            Self::Modelled { router: Some(router), .. } => router.1.create_function(function.name()).await,
            Self::Real { router: Some(_), .. } => {
                let services: Api<Service> = Api::namespaced(self.client().clone(), self.namespace());
                let service = restricted::function_service(function.name())?;
                services.create(&PostParams::default(), &service).await?;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Where the router takes calls of a function; `None` without a router.
    pub fn router_url(&self, function: Function) -> Option<String> {
        match self {
            Self::Modelled { router: Some(router), .. } => {
                Some(router.0.url(self.namespace(), function.name()))
            }
            Self::Real { router: Some(router), .. } => Some(router.url(self.namespace(), function.name())),
            _ => None,
        }
    }

    /// The functions' pods.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client().clone(), self.namespace())
    }

    fn namespace(&self) -> &'static str {
        match self {
            Self::Modelled { .. } => "default",
            Self::Real { .. } => Self::REAL_NAMESPACE,
        }
    }

    fn client(&self) -> &Client {
        match self {
            Self::Modelled { cluster, .. } => cluster.plane().client(),
            Self::Real { cluster, .. } => cluster.plane().client(),
        }
    }

    /// Starts the live page of the cluster.
    pub async fn web(&self) -> Result<Web> {
        let (plane, parts) = match self {
            Self::Modelled { cluster, router, traces, .. } => {
                let parts = Parts {
                    otlp_listen: Some(format!("{}:{OTLP_PORT}", traces.control_plane())),
                    extender: Some(cluster.extender_url("")),
                    picker: router.as_ref().map(|router| router.0.picker_url()),
                    ..Parts::default()
                };
                (cluster.plane(), parts)
            }
            Self::Real { cluster, .. } => (cluster.plane(), Parts::default()),
        };
        Web::start(plane, &Identity::Admin, &parts).await
    }

    /// The HTTP client of the cluster.
    pub fn http(&self) -> &HttpClient {
        match self {
            Self::Modelled { cluster, .. } => cluster.http(),
            Self::Real { cluster, .. } => cluster.http(),
        }
    }

    /// The folder of the logs.
    pub fn logs(&self) -> PathBuf {
        match self {
            Self::Modelled { cluster, .. } => cluster.logs(),
            Self::Real { cluster, .. } => cluster.plane().run_dir().path().join("logs"),
        }
    }

    /// Fails with the end of the log if a program that should run has ended.
    pub fn check_running(&self) -> Result<()> {
        match self {
            Self::Modelled { cluster, router, .. } => {
                router.iter().try_for_each(|router| router.0.check_running())?;
                cluster.check_running()
            }
            Self::Real { cluster, .. } => cluster.check_running(),
        }
    }

    /// Stops all programs.
    pub async fn stop(self) {
        match self {
            Self::Modelled { cluster, router, .. } => {
                if let Some(router) = router {
                    router.0.stop().await;
                }
                cluster.stop().await;
            }
            Self::Real { cluster, .. } => cluster.stop().await,
        }
    }
}

fn collector_args(window: Duration) -> Vec<String> {
    let window = format!("{}ms", window.as_millis());
    ["--min-write-interval", "500ms", "--window", &window].map(str::to_owned).to_vec()
}

/// The extender's settings file with these weights of locality, usage and reconfiguration.
fn extender_config(weights: &str) -> Result<String> {
    let parts: Vec<&str> = weights.split('-').collect();
    let [locality, usage, reconfiguration] = parts[..] else {
        anyhow::bail!("{weights} are no weights; write three of them, for example 1-2-2");
    };
    Ok(format!("weights:\n  locality: {locality}\n  usage: {usage}\n  reconfiguration: {reconfiguration}\n"))
}
