//! Outages of parts, one after the other: the scheduler with the extender, the collector, both registries, the router and the broker; then
//! the API server.

mod api_server;

use super::restart;
use crate::pool;
use crate::publisher::{Publisher, Release};
use crate::routed::processes;
use crate::site::{create, delete, ready, sobel, sobel_image};
use anyhow::ensure;
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::artifacts;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::helm::NAMESPACE;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{RunMount, ServiceProxy, envoy_image};
use fpga_tests::testbed::restricted::{self, RestrictedPod, is_ready};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

const NODE: &str = "n1";
const SHOP: &str = "shop";
const FUNCTION: &str = "sobel";
/// A pod that comes while a part is away.
const NEW: &str = "new";
const VALUES: [&str; 7] = [
    "boardKinds[0].arguments={--vendor=pocl,--board=pocl,--shell=1.0,--slots=4}",
    "scheduler.replicas=1",
    "registry.enabled=true",
    "registry.replicas=1",
    "router.enabled=true",
    "router.replicas=1",
    "pool.replicas=1",
];

/// A part of the chart, with a pod of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Extender,
    Collector,
    /// Beside the chart's, that from which the function's bitstream has come.
    Registry,
    Router,
    Broker,
}

impl Part {
    /// The name of its Deployment, or of the collector's DaemonSet.
    const fn workload(self) -> &'static str {
        match self {
            Self::Extender => "fpga-scheduler-extender",
            Self::Collector => "fpga-collector",
            Self::Registry => "fpga-registry",
            Self::Router => "fpga-router",
            Self::Broker => "fpga-pool",
        }
    }

    /// The program that does the part's work.
    const fn program(self) -> &'static str {
        match self {
            Self::Extender => "kube-scheduler",
            Self::Collector => "fpga-collector",
            Self::Registry => "fpga-registry",
            Self::Router => "envoy",
            Self::Broker => "fpga-pool",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Away,
    There,
}

/// A node with the whole chart, a registry of artifacts, and the router's address for the function.
struct Bed {
    cluster: RealCluster,
    publisher: Publisher,
    pods: Api<Pod>,
    _router: ServiceProxy,
    url: String,
    case: Case,
    http: HttpClient,
}

impl Bed {
    async fn start() -> Self {
        let spec = RealClusterSpec {
            nodes: vec![(NODE.to_owned(), RunMount::Executable)],
            images: vec![
                sobel_image(),
                pool::job_image(),
                envoy_image().unwrap(),
                restricted::idle_image().unwrap(),
            ],
            values: VALUES.into_iter().chain(pool::VALUES).map(str::to_owned).collect(),
        };
        let namespace = async |plane: &ControlPlane| {
            restricted::namespace(plane.client(), SHOP).await?;
            let host = plane.network().node(0).pod_gateway();
            Ok(vec![format!("nodePlugin.library.hosts={{http://{host}:5000}}")])
        };
        let cluster = RealCluster::start_with(spec, namespace).await.unwrap();
        let publisher = publish(&cluster).await;
        pool::publish(&cluster, SHOP).await;
        // Managers that start now find the broker's authority, which the kubelet brings to running ones within minutes.
        pool::boards_only_on(&cluster, NODE).await;
        cluster.wait_rolled_out().await.unwrap();
        let client = cluster.plane().client().clone();
        let services: Api<Service> = Api::namespaced(client.clone(), SHOP);
        let service = restricted::function_service(FUNCTION).unwrap();
        services.create(&PostParams::default(), &service).await.unwrap();
        let router = cluster.router().await.unwrap();
        Self {
            pods: Api::namespaced(client, SHOP),
            url: router.url(SHOP, FUNCTION),
            _router: router,
            case: Case::new(Function::Sobel, 64, 1).unwrap(),
            http: HttpClient::new(patience()),
            publisher,
            cluster,
        }
    }

    /// Starts a pod of the function; returns its address.
    async fn started(&self, name: &str) -> String {
        create(&self.pods, &function(name)).await;
        ready(&self.pods, name, &self.cluster.nodes()[0]).await.status.unwrap().pod_ip.unwrap()
    }

    /// Has Kubernetes take the part's pods away, or make them anew.
    async fn want(&self, part: Part, wanted: Wanted) {
        let client = self.cluster.plane().client().clone();
        let (name, merge) = (part.workload(), PatchParams::default());
        if part == Part::Collector {
            let elsewhere = (wanted == Wanted::Away).then_some("true");
            let selector = json!({"nodeSelector": {"elsewhere": elsewhere}});
            let patch = Patch::Merge(json!({"spec": {"template": {"spec": selector}}}));
            Api::<DaemonSet>::namespaced(client, NAMESPACE).patch(name, &merge, &patch).await.unwrap();
        } else {
            let patch = Patch::Merge(json!({"spec": {"replicas": u8::from(wanted == Wanted::There)}}));
            Api::<Deployment>::namespaced(client, NAMESPACE).patch(name, &merge, &patch).await.unwrap();
        }
    }

    /// Whether Kubernetes makes no pod of the part any more.
    async fn is_wanted_away(&self, part: Part) -> anyhow::Result<bool> {
        let client = self.cluster.plane().client().clone();
        if part == Part::Collector {
            let found = Api::<DaemonSet>::namespaced(client, NAMESPACE).get(part.workload()).await?;
            return Ok(found.status.is_some_and(|status| status.desired_number_scheduled == 0));
        }
        let found = Api::<Deployment>::namespaced(client, NAMESPACE).get(part.workload()).await?;
        Ok(found.status.is_some_and(|status| status.replicas.is_none_or(|replicas| replicas == 0)))
    }

    /// Kills the part, which stays away.
    async fn take_away(&mut self, part: Part) {
        if part == Part::Registry {
            self.publisher.registry.kill().await;
        }
        let pods = self.cluster.pods();
        let of_part = ListParams::default().labels(&format!("app.kubernetes.io/name={}", part.workload()));
        self.want(part, Wanted::Away).await;
        wait::until(&format!("no {part:?} to be wanted"), async || {
            Ok(self.is_wanted_away(part).await?.then_some(()))
        })
        .await
        .unwrap();
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete_collection(&at_once, &of_part).await.unwrap();
        // The objects go before the processes.
        wait::until(&format!("the programs of {part:?} to end"), async || {
            self.cluster.check_running()?;
            let pods = pods.list(&of_part).await?.items;
            Ok((pods.is_empty() && processes(part.program()).is_empty()).then_some(()))
        })
        .await
        .unwrap();
    }

    async fn bring_back(&mut self, part: Part) {
        if part == Part::Registry {
            self.publisher.registry.start_again().await.unwrap();
        }
        self.want(part, Wanted::There).await;
        self.cluster.wait_rolled_out().await.unwrap();
    }

    /// Calls of the function by its session go on.
    async fn session_goes_on(&self, address: &str) {
        for _ in 0..5 {
            self.case.invoke(&self.http, address).await.unwrap();
        }
    }

    /// The function's program is killed, and the kubelet starts the container again with its board and bitstream.
    async fn container_restarts(&self, address: &str) {
        restart(FUNCTION, async || {
            self.cluster.check_running()?;
            self.case.invoke(&self.http, address).await
        })
        .await;
    }

    /// Waits until the function answers by the router.
    async fn router_answers(&self) {
        wait::until("the function to answer by the router", async || {
            self.case.invoke_at(&self.http, &self.url).await.map(Some)
        })
        .await
        .unwrap();
    }

    /// A pod that comes now gets a board. Without the extender it waits.
    async fn new_pods(&self, away: Part) {
        if away != Part::Extender {
            let address = self.started(NEW).await;
            self.case.invoke(&self.http, &address).await.unwrap();
            return;
        }
        create(&self.pods, &function(NEW)).await;
    }

    /// A job of the pool ends right. Without the broker it waits.
    async fn jobs(&self, away: Part) {
        pool::start_job(&self.pods, NODE).await;
        if away != Part::Broker {
            pool::job_ends_right(&self.cluster, &self.pods).await;
            return;
        }
        wait::until("the job's pod to run", async || {
            let pod = self.pods.get("job").await?;
            Ok(is_ready(&pod).then_some(()))
        })
        .await
        .unwrap();
    }

    /// What goes on while the part is away, and what waits until it is back.
    async fn outage(&mut self, part: Part) {
        let address = self.started(FUNCTION).await;
        self.session_goes_on(&address).await;
        self.router_answers().await;

        self.take_away(part).await;
        self.session_goes_on(&address).await;
        self.container_restarts(&address).await;
        match part {
            Part::Router => {
                let called = self.case.invoke_at(&self.http, &self.url).await;
                assert!(called.is_err(), "there is no router");
            }
            _ => self.router_answers().await,
        }
        self.new_pods(part).await;
        self.jobs(part).await;
        self.session_goes_on(&address).await;
        self.waits(part).await.unwrap();

        self.bring_back(part).await;
        self.router_answers().await;
        ready(&self.pods, NEW, &self.cluster.nodes()[0]).await;
        pool::job_ends_right(&self.cluster, &self.pods).await;
        self.session_goes_on(&address).await;
        for pod in [FUNCTION, NEW, "job"] {
            delete(&self.pods, pod).await;
        }
    }

    /// What needs the part still waits.
    async fn waits(&self, part: Part) -> anyhow::Result<()> {
        match part {
            Part::Extender => {
                let pod = self.pods.get(NEW).await?;
                ensure!(
                    pod.spec.is_some_and(|spec| spec.node_name.is_none()),
                    "without an extender the pod waits"
                );
            }
            Part::Broker => {
                let job = self.pods.get("job").await?;
                ensure!(is_ready(&job), "without a broker the job waits: {:?}", job.status);
            }
            Part::Collector | Part::Registry | Part::Router => {}
        }
        Ok(())
    }
}

/// A pod of the function, which names its bitstream.
fn function(name: &str) -> RestrictedPod {
    sobel(name, &sobel_image()).annotation("fpga-scheduling.io/bitstreams", FUNCTION)
}

/// Publishes the function's bitstream in a registry that the node's pods reach.
async fn publish(cluster: &RealCluster) -> Publisher {
    let publisher = Publisher::start_at(cluster.plane().network().node(0).pod_gateway()).await;
    let file = format!("{FUNCTION}.bitstream");
    let built = artifacts::bitstreams(Runtime::Pocl).unwrap().join(&file);
    std::fs::copy(built, publisher.folder.path().join(&file)).unwrap();
    let release = Release {
        accelerator: FUNCTION,
        tag: "1.0",
        vendor: Runtime::Pocl.vendor(),
        files: &[(&file, "pocl")],
        arguments: &["--namespace", SHOP],
    };
    let bitstream = publisher.publish(&release).await;
    publisher.apply(cluster.plane(), &bitstream).await;
    pool::accepted(cluster, SHOP, FUNCTION).await;
    publisher
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn while_a_part_is_away_all_goes_on_that_does_not_need_it() {
    let mut bed = Bed::start().await;
    let before = bed.publisher.registry.requests("/blobs/");
    for part in [Part::Extender, Part::Collector, Part::Registry, Part::Router, Part::Broker] {
        println!("{part:?} is taken away");
        bed.outage(part).await;
    }
    let fetched = bed.publisher.registry.requests("/blobs/") - before;
    assert_eq!(fetched, 1, "the function's bitstream came to the node once");
    println!("the API server is silent");
    bed.outage_of_api_server().await;
    bed.cluster.stop().await;
}
