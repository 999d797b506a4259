//! The Helm chart (manifests/chart) with the real Helm on a real API server: what it renders, what it refuses, what its
//! policies do to pods, and what it leaves behind.

mod alone;
mod boards;
mod envoy;
mod node_plugin;
mod placement;
mod pods;
mod rendered;
mod uninstall;

use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::helm;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::{Pod, ResourceRequirements, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

/// Names that nothing in the chart expects.
const RELEASE: &str = "boards-of-team-7";
const NAMESPACE: &str = "hardware";
/// The resource.
const BOARD: &str = "fpga-scheduling.io/accelerated";
/// The line that messages tell.
const LINE: &str = "resources: {limits: {fpga-scheduling.io/accelerated: 1}}";

/// Runs Helm at the top of the repository; success, and what it says.
async fn helm(plane: Option<&ControlPlane>, arguments: &[&str]) -> (bool, String) {
    let mut command = tokio::process::Command::new(helm::helm().unwrap());
    command.args(arguments).current_dir(repository()).env_remove("KUBECONFIG");
    if let Some(plane) = plane {
        command.env("KUBECONFIG", plane.kubeconfig(&Identity::Admin).unwrap());
        // Helm keeps its files below the home folder.
        command.env("HOME", plane.run_dir().path());
    }
    let output = command.output().await.unwrap();
    (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
}

/// Renders the chart with these settings; success, and what Helm says.
async fn render(settings: &[&str]) -> (bool, String) {
    let chart = ["template", RELEASE, "manifests/chart", "--namespace", NAMESPACE];
    let cluster = ["--kube-version=v1.36.3", "--set=scheduler.version=v1.36.3"];
    helm(None, &[&chart[..], &cluster, settings].concat()).await
}

/// Installs the chart, and waits until the API server enforces its policies, which takes a moment.
async fn install(plane: &ControlPlane, settings: &[&str]) {
    let chart = ["install", RELEASE, "manifests/chart", "--namespace", NAMESPACE, "--create-namespace"];
    let values = ["--values", "manifests/values/pocl.yaml"];
    let (well, text) = helm(Some(plane), &[&chart[..], &values[..], settings].concat()).await;
    assert!(well, "{text}");
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().clone(), "default");
    let account = async || Ok(accounts.get_opt("default").await?.map(drop));
    wait::until("the default service account", account).await.unwrap();
    let (by_hand, asks) =
        (pod(json!({"env": [{"name": "FPGA_DEVICE_MANAGERS", "value": "x"}]})), pod(board()));
    wait::until("the policies to hold", async || {
        let assigned = try_pod(plane.client(), &asks).await?;
        let assigned =
            assigned.spec.and_then(|spec| spec.scheduler_name).is_some_and(|name| name == "kube-fpga");
        Ok((assigned && try_pod(plane.client(), &by_hand).await.is_err()).then_some(()))
    })
    .await
    .unwrap();
}

/// The fields of a container that asks for a board.
fn board() -> Value {
    json!({"resources": {"limits": {"fpga-scheduling.io/accelerated": 1}}})
}

/// A pod with this container, but for name and image.
fn pod(mut container: Value) -> Value {
    container["name"] = json!("main");
    container["image"] = json!("none");
    json!({"metadata": {"name": "tried"}, "spec": {"containers": [container]}})
}

/// Asks the API server what it would make of the pod.
async fn try_pod(client: &Client, pod: &Value) -> kube::Result<Pod> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    pods.create(&dry_run, &serde_json::from_value(pod.clone()).unwrap()).await
}

/// The pod with another value at this path of JSON.
fn with(mut pod: Value, path: &str, value: Value) -> Value {
    let (parent, key) = path.rsplit_once('/').unwrap();
    pod.pointer_mut(parent).unwrap()[key] = value;
    pod
}

/// A pod with this init container.
fn with_init(main: Value, mut init: Value) -> Value {
    init["name"] = json!("init");
    init["image"] = json!("none");
    with(pod(main), "/spec/initContainers", json!([init]))
}

/// A container that asks for so much of the resource.
fn quantity(resource: &str, quantity: Value) -> Value {
    let mut container = json!({"resources": {"limits": {}}});
    container["resources"]["limits"][resource] = quantity;
    container
}

/// What the API server makes of the pod: its scheduler, how often it tolerates the taint, and which containers ask for how many boards.
async fn created(client: &Client, pod: &Value) -> (String, usize, String) {
    let spec = try_pod(client, pod).await.unwrap_or_else(|error| panic!("{pod}: {error}")).spec.unwrap();
    let tolerations = spec.tolerations.unwrap_or_default();
    let tolerates =
        tolerations.iter().filter(|one| one.key.as_deref() == Some("fpga-scheduling.io/accelerated")).count();
    let all = spec.containers.into_iter().chain(spec.init_containers.unwrap_or_default());
    let asking = all.filter_map(|container| {
        let Some(ResourceRequirements { limits: Some(limits), requests: Some(requests), .. }) =
            container.resources
        else {
            return None;
        };
        assert_eq!(limits, requests);
        Some(format!("{}: {}", container.name, limits.get("fpga-scheduling.io/accelerated")?.0))
    });
    (spec.scheduler_name.unwrap(), tolerates, asking.collect::<Vec<_>>().join(", "))
}

/// A pod of our scheduler in which these containers have boards.
fn ours(boards: &str) -> (String, usize, String) {
    ("kube-fpga".to_owned(), 1, boards.to_owned())
}

/// A pod that is left as it is.
fn ordinary(boards: &str) -> (String, usize, String) {
    ("default-scheduler".to_owned(), 0, boards.to_owned())
}

/// Fails unless the API server refuses each of the pods with each of its texts.
async fn refused(client: &Client, pods: &[(Value, &[&str])]) {
    for (pod, texts) in pods {
        let error =
            try_pod(client, pod).await.map(|_| ()).expect_err(&format!("{pod} {texts:?}")).to_string();
        let missing: Vec<_> = texts.iter().filter(|text| !error.contains(**text)).collect();
        assert!(missing.is_empty(), "{pod}: {missing:?} are not in {error}");
    }
}
