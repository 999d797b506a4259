//! The Helm chart (manifests/chart) with the real Helm on a real API server: what it renders, what it refuses, what its
//! policies do to pods, and what it leaves behind.

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
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};

/// Names that nothing in the chart expects.
const RELEASE: &str = "boards-of-team-7";
const NAMESPACE: &str = "hardware";

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
    let chart = ["template", RELEASE, "manifests/chart", "--namespace", NAMESPACE, "--kube-version=v1.36.3"];
    helm(None, &[chart.as_slice(), settings].concat()).await
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
