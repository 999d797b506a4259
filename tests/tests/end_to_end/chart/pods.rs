//! What the chart's policies do to pods: who asks for a board gets the scheduler, and who would pass it by is told the line.

use super::{board, install, pod, try_pod};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

#[tokio::test]
async fn pods_that_ask_for_a_board_get_our_scheduler_and_pods_that_would_pass_us_by_are_told_the_line() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    let created = async |pod: &Value| {
        let spec = try_pod(plane.client(), pod).await.unwrap().spec.unwrap();
        let tolerations = spec.tolerations.unwrap_or_default();
        let tolerates = tolerations
            .iter()
            .filter(|one| one.key.as_deref() == Some("fpga-scheduling.io/accelerated"))
            .count();
        (spec.scheduler_name.unwrap(), tolerates)
    };
    let with = |mut pod: Value, path: &str, value: Value| {
        *pod.pointer_mut(path).unwrap_or(&mut Value::Null) = value.clone();
        let (parent, key) = path.rsplit_once('/').unwrap();
        pod.pointer_mut(parent).unwrap()[key] = value;
        pod
    };
    let ours = ("kube-fpga".to_owned(), 1);
    assert_eq!(created(&pod(board())).await, ours);
    let mut sidecar = board();
    sidecar["name"] = json!("sidecar");
    sidecar["image"] = json!("none");
    let init = with(pod(json!({})), "/spec/initContainers", json!([sidecar.clone()]));
    sidecar["restartPolicy"] = json!("Always");
    let sidecar = with(pod(json!({})), "/spec/initContainers", json!([sidecar]));
    assert_eq!(created(&sidecar).await, ours);
    let tolerates = json!([{"key": "fpga-scheduling.io/accelerated", "operator": "Exists"}]);
    assert_eq!(created(&with(pod(board()), "/spec/tolerations", tolerates)).await, ours);
    let other = with(pod(board()), "/spec/schedulerName", json!("other"));
    assert_eq!(created(&other).await, ("other".to_owned(), 1));
    let ignored = with(pod(board()), "/metadata/labels", json!({"fpga-scheduling.io/admission": "ignore"}));
    assert_eq!(created(&ignored).await, ("default-scheduler".to_owned(), 0));
    assert_eq!(created(&pod(json!({}))).await, ("default-scheduler".to_owned(), 0));

    let line = "resources: {limits: {fpga-scheduling.io/accelerated: 1}}";
    let label = |key: &str| with(pod(json!({})), "/metadata/labels", json!({ key: "x" }));
    let host_path = |path: &str| {
        with(pod(json!({})), "/spec/volumes", json!([{"name": "v", "hostPath": {"path": path}}]))
    };
    let by_hand = pod(json!({"env": [{"name": "FPGA_DEVICE_MANAGERS", "value": "unix:/x"}]}));
    for (wrong, because, line) in [
        (label("fpga-scheduling.io/fpga-vendor"), "has the label fpga-scheduling.io/fpga-vendor", line),
        (label("fpga-scheduling.io/board"), "has the label fpga-scheduling.io/board", line),
        // No number, so that nothing is asked for.
        (label("fpga-scheduling.io/accelerated"), "has the label fpga-scheduling.io/accelerated", line),
        (init, "an init container can't have a board", "restartPolicy: Always"),
        (host_path("/run/fpga"), "folders of kube-fpga", line),
        (host_path("/var//run//fpga/claims"), "folders of kube-fpga", line),
        (host_path("/var/lib/kubelet/plugins/fpga-scheduling.io"), "folders of kube-fpga", line),
        (by_hand.clone(), "FPGA_DEVICE_MANAGERS can't be set by hand", line),
    ] {
        let error = try_pod(plane.client(), &wrong).await.expect_err(because).to_string();
        assert!(error.contains(because) && error.contains(line), "{wrong}: {error}");
    }
    created(&host_path("/run/fpga-of-others")).await;
    created(&with(by_hand, "/metadata/labels", json!({"fpga-scheduling.io/admission": "ignore"}))).await;
    plane.stop().await;
}

#[tokio::test]
async fn functions_of_openfaas_and_knative_get_a_board_as_their_controllers_deploy_them() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    for (file, namespace, container) in
        [("openfaas", "openfaas-fn", "sobel"), ("knative", "fpga-functions", "user-container")]
    {
        kubectl(&plane, &["create", "namespace", namespace]).await.unwrap();
        let deployment = repository().join(format!("tests/platforms/{file}.yaml"));
        let deployment = deployment.to_str().unwrap();
        let apply = ["apply", "--server-side", "--validate=strict", "-n", namespace, "-f", deployment];
        kubectl(&plane, &apply).await.unwrap();
        let pods: Api<Pod> = Api::namespaced(plane.client().clone(), namespace);
        let pod = wait::until("the function's pod", async || {
            Ok(pods.list(&ListParams::default()).await?.items.pop())
        });
        let spec = pod.await.unwrap().spec.unwrap();
        assert_eq!(spec.scheduler_name.as_deref(), Some("kube-fpga"), "{file}");
        let asking = spec.containers.iter().find(|one| one.name == container).unwrap();
        let resources = asking.resources.clone().unwrap();
        for quantities in [resources.limits, resources.requests] {
            assert_eq!(quantities.unwrap()["fpga-scheduling.io/accelerated"].0, "1", "{file}");
        }
    }
    let service = repository().join("manifests/examples/openfaas/service.yaml");
    kubectl(&plane, &["apply", "--validate=strict", "-f", service.to_str().unwrap()]).await.unwrap();
    plane.stop().await;
}
