//! Functions as OpenFaaS and Knative deploy them (tests/platforms) in pods of real nodes: they get boards by the label and the resource of
//! the examples, and the chart's router calls them, those of Knative by way of its queue-proxy.

use anyhow::Context as _;
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{Image, RunMount, envoy_image};
use fpga_tests::testbed::restricted::{function_image_as, is_ready};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Namespace, Pod, Service};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

/// The image of the examples, as containerd has it.
const FUNCTION_IMAGE: &str = concat!("docker.io/kube-fpga/function-sobel:", env!("CARGO_PKG_VERSION"));
const BOARDS: &str = "fpga-scheduling.io/boards";
const REPLICAS: usize = 2;
/// Port of a picker for people, in the router's pods.
const PICKER_READ: u16 = 9465;

/// A platform of functions.
struct Platform {
    /// What it makes of the example.
    recorded: &'static str,
    /// File of the example with the Service for the router.
    example: &'static str,
    namespace: &'static str,
    /// The port at which the router calls its pods.
    port: u16,
}

const PLATFORMS: [Platform; 2] = [
    Platform {
        recorded: "openfaas.yaml",
        example: "openfaas/service.yaml",
        namespace: "openfaas-fn",
        port: 8080,
    },
    Platform {
        recorded: "knative.yaml",
        example: "knative/service.yaml",
        namespace: "fpga-functions",
        port: 8012,
    },
];

/// The objects of this kind in a file of the repository.
fn objects(file: &str, api_version: &str, kind: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(repository().join(file)).unwrap();
    let all: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap();
    let found: Vec<Value> =
        all.into_iter().filter(|one| one["apiVersion"] == api_version && one["kind"] == kind).collect();
    assert!(!found.is_empty(), "{file} has no {kind}");
    found
}

impl Platform {
    /// Creates what the platform makes of the example, with two replicas, and the Service for the router.
    async fn deploy(&self, cluster: &RealCluster) {
        let client = cluster.plane().client();
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": self.namespace}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        let deployments: Api<Deployment> = Api::namespaced(client.clone(), self.namespace);
        for mut deployment in objects(&format!("tests/platforms/{}", self.recorded), "apps/v1", "Deployment")
        {
            deployment["spec"]["replicas"] = json!(REPLICAS);
            for container in
                deployment["spec"]["template"]["spec"]["containers"].as_array_mut().into_iter().flatten()
            {
                // The nodes reach no registry.
                container["imagePullPolicy"] = json!("Never");
            }
            let deployment = serde_json::from_value(deployment).unwrap();
            deployments.create(&PostParams::default(), &deployment).await.unwrap();
        }
        let services: Api<Service> = Api::namespaced(client.clone(), self.namespace);
        for service in objects(&format!("manifests/examples/{}", self.example), "v1", "Service") {
            let service = serde_json::from_value(service).unwrap();
            services.create(&PostParams::default(), &service).await.unwrap();
        }
    }

    /// Waits until all replicas are ready, and returns them.
    async fn ready_pods(&self, cluster: &RealCluster) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(cluster.plane().client().clone(), self.namespace);
        wait::until_within(
            &format!("the pods in {} to be ready", self.namespace),
            2 * patience(),
            async || {
                cluster.check_running()?;
                let pods = pods.list(&ListParams::default()).await?.items;
                let all = pods.len() == REPLICAS && pods.iter().all(is_ready);
                anyhow::ensure!(all, "{:?}", pods.iter().map(|pod| &pod.status).collect::<Vec<_>>());
                Ok(Some(pods))
            },
        )
        .await
        .unwrap()
    }
}

/// The last choice of the chart's picker for the function `sobel` of a namespace.
async fn last_choice(cluster: &RealCluster, namespace: &str) -> anyhow::Result<Value> {
    let pods = cluster.addresses("fpga-router").await?;
    let (_, ip) = pods.first().context("the router has no pod")?;
    let url = format!("http://{ip}:{PICKER_READ}/picks/{namespace}/sobel");
    Ok(cluster.http().get(&url).await?.json()?["picks"][0].take())
}

/// Knative's queue-proxy under the name in what Knative makes.
fn queue_proxy_image() -> Image {
    let program = repository().join("build/knative/queue");
    assert!(program.exists(), "{} is missing. Run `make knative` (once)", program.display());
    let deployment = objects("tests/platforms/knative.yaml", "apps/v1", "Deployment").remove(0);
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap().clone();
    let queue = containers.into_iter().find(|container| container["name"] == "queue-proxy").unwrap();
    Image::new(queue["image"].as_str().unwrap(), "/ko-app/queue").file("/ko-app/queue", program)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-platforms"]
async fn functions_as_openfaas_and_knative_deploy_them_get_boards_and_are_called_by_the_router() {
    let nodes = [("n1", RunMount::Executable), ("n2", RunMount::NoExec)];
    let cluster = RealCluster::start(RealClusterSpec {
        nodes: nodes.map(|(name, run_mount)| (name.to_owned(), run_mount)).to_vec(),
        images: vec![
            function_image_as(Function::Sobel, FUNCTION_IMAGE).unwrap(),
            queue_proxy_image(),
            envoy_image().unwrap(),
        ],
        values: ["router.enabled=true", "router.replicas=1"].map(str::to_owned).to_vec(),
    })
    .await
    .unwrap();
    for platform in &PLATFORMS {
        platform.deploy(&cluster).await;
    }
    let router = cluster.router().await.unwrap();
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    for platform in &PLATFORMS {
        let namespace = platform.namespace;
        for pod in platform.ready_pods(&cluster).await {
            assert_eq!(pod.spec.as_ref().unwrap().scheduler_name.as_deref(), Some("kube-fpga"));
            assert!(pod.annotations().contains_key(BOARDS), "{namespace}: {:?}", pod.annotations());
        }
        let url = router.url(namespace, "sobel");
        wait::until(&format!("{namespace}: a choice by the bitstream"), async || {
            case.invoke_at(cluster.http(), &url).await?;
            let choice = last_choice(&cluster, namespace).await?;
            anyhow::ensure!(choice["basis"] == "resident", "{choice}");
            // The picker may know one replica before the other.
            anyhow::ensure!(choice["candidates"] == REPLICAS, "{choice}");
            let endpoint = choice["endpoints"][0].as_str().unwrap_or_default();
            assert!(endpoint.ends_with(&format!(":{}", platform.port)), "{choice}");
            Ok(Some(()))
        })
        .await
        .unwrap();
        for _ in 0..4 {
            case.invoke_at(cluster.http(), &url).await.unwrap();
        }
    }
    cluster.stop().await;
}
