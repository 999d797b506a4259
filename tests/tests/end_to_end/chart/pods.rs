//! What the chart's policies do to pods: who asks for a board gets the scheduler, and who would pass it by is told the line.

use super::{BOARD, LINE, board, created, install, ordinary, ours, pod, quantity, refused, with, with_init};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

#[tokio::test]
async fn pods_that_ask_for_a_board_get_our_scheduler_and_pods_that_would_pass_us_by_are_told_the_line() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(
        &plane,
        &["--set", "podAdmission.otherSchedulers={volcano},scheduler.vendorResources={intel,amd}"],
    )
    .await;
    let client = plane.client();
    let sidecar = |main: Value| {
        with_init(main, json!({"restartPolicy": "Always", "resources": {"limits": { BOARD: 1 }}}))
    };
    let tolerates = json!([{"key": BOARD, "operator": "Exists"}]);
    let ignore = json!({"fpga-scheduling.io/admission": "ignore"});
    let scheduler = |name: &str| with(pod(board()), "/spec/schedulerName", json!(name));
    let zero = || quantity(BOARD, json!(0));
    for (pod, outcome) in [
        (pod(board()), ours("main: 1")),
        (sidecar(json!({})), ours("init: 1")),
        (sidecar(board()), ours("main: 1, init: 1")),
        (with(pod(board()), "/spec/tolerations", tolerates), ours("main: 1")),
        (scheduler("volcano"), ("volcano".to_owned(), 1, "main: 1".to_owned())),
        (with(pod(board()), "/metadata/labels", ignore.clone()), ordinary("main: 1")),
        (pod(json!({})), ordinary("")),
        // Zero boards are none, in whatever way they are written and whatever else the pod says.
        (pod(zero()), ordinary("main: 0")),
        (pod(quantity(BOARD, json!("0Ki"))), ordinary("main: 0")),
        (
            with(pod(zero()), "/metadata/labels", json!({"fpga-scheduling.io/fpga-vendor": "intel"})),
            ordinary("main: 0"),
        ),
        (
            with(pod(zero()), "/spec/schedulerName", json!("other")),
            ("other".to_owned(), 0, "main: 0".to_owned()),
        ),
        (with_init(board(), zero()), ours("main: 1, init: 0")),
        (pod(quantity("fpga-scheduling.io/xilinx", json!(0))), ordinary("")),
    ] {
        assert_eq!(created(client, &pod).await, outcome, "{pod}");
    }
    let intel = quantity("fpga-scheduling.io/intel", json!(1));
    assert_eq!(created(client, &pod(intel.clone())).await, ours(""));

    let host_path = |path: &str| {
        with(pod(json!({})), "/spec/volumes", json!([{"name": "v", "hostPath": {"path": path}}]))
    };
    let by_hand = pod(json!({"env": [{"name": "FPGA_DEVICE_MANAGERS", "value": "unix:/x"}]}));
    let two = json!({"resources": {"limits": {"fpga-scheduling.io/intel": 1, BOARD: 1}}});
    let mut amd = quantity("fpga-scheduling.io/amd", json!(1));
    (amd["name"], amd["image"]) = (json!("second"), json!("none"));
    let two_vendors = pod(intel);
    let containers = json!([two_vendors["spec"]["containers"][0], amd]);
    refused(
        client,
        &[
            (scheduler("other"), &["its scheduler other does not ask", "schedulerName: kube-fpga"]),
            (
                with_init(json!({}), board()),
                &["the init container init can't have a board", "restartPolicy: Always"],
            ),
            (
                with_init(board(), board()),
                &["the init container init can't have a board", "ask in a container"],
            ),
            (
                pod(quantity("fpga-scheduling.io/xilinx", json!(1))),
                &[
                    "no resource fpga-scheduling.io/xilinx, but",
                    LINE,
                    "fpga-scheduling.io/fpga-vendor: xilinx",
                ],
            ),
            (pod(two), &["two of the resources", "write one of them"]),
            (with(two_vendors, "/spec/containers", containers), &["boards of two vendors"]),
            (host_path("/run/fpga"), &["folders of kube-fpga", LINE]),
            (host_path("/var//run//fpga/claims"), &["folders of kube-fpga", LINE]),
            (host_path("/var/lib/kubelet/plugins/fpga-scheduling.io"), &["folders of kube-fpga", LINE]),
            (
                with(host_path("/run/fpga"), "/metadata/labels", ignore.clone()),
                &["folders of kube-fpga", LINE],
            ),
            (by_hand.clone(), &["FPGA_DEVICE_MANAGERS can't be set by hand", LINE]),
            // Refused by the API server itself.
            (pod(json!({"resources": {"requests": { BOARD: 1 }}})), &["Limit must be set"]),
            (
                with(pod(json!({})), "/spec/resources", json!({"limits": { BOARD: 1 }})),
                &["Unsupported value"],
            ),
        ],
    )
    .await;
    created(client, &host_path("/run/fpga-of-others")).await;
    created(client, &with(by_hand.clone(), "/metadata/labels", ignore)).await;
    ephemeral_containers_are_judged_and_changes_of_pods_are_not(&plane, &by_hand).await;
    plane.stop().await;
}

/// A pod that was there before the policies, or whose labels change later, stays as it is.
async fn ephemeral_containers_are_judged_and_changes_of_pods_are_not(plane: &ControlPlane, by_hand: &Value) {
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), "default");
    let plain = serde_json::from_value(pod(json!({}))).unwrap();
    pods.create(&PostParams::default(), &plain).await.unwrap();
    let label = json!({"metadata": {"labels": {"fpga-scheduling.io/fpga-vendor": "intel"}}});
    pods.patch("tried", &PatchParams::default(), &Patch::Merge(label)).await.unwrap();
    let mut debugger = by_hand["spec"]["containers"][0].clone();
    debugger["name"] = json!("debugger");
    let patch = json!({"spec": {"ephemeralContainers": [debugger]}});
    let debug = async |patch: &Value| {
        pods.patch_ephemeral_containers("tried", &PatchParams::default(), &Patch::Strategic(patch)).await
    };
    let error = debug(&patch).await.unwrap_err().to_string();
    assert!(error.contains("FPGA_DEVICE_MANAGERS can't be set by hand"), "{error}");
    debug(&with(patch, "/spec/ephemeralContainers/0/env", Value::Null)).await.unwrap();
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
