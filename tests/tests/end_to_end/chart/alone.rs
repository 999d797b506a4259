//! Pods that ask for a board by labels and annotations alone: from Kubernetes 1.36 on, and before.

use super::{
    BOARD, LINE, NAMESPACE, RELEASE, board, created, helm, install, ordinary, ours, pod, quantity, refused,
    try_pod, with,
};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::wait;
use kube::Client;
use serde_json::{Value, json};

/// A pod whose only container asks for nothing, with these labels.
fn labelled(labels: Value) -> Value {
    with(pod(json!({})), "/metadata/labels", labels)
}

/// Such a pod with these annotations.
fn annotated(annotations: Value) -> Value {
    with(pod(json!({})), "/metadata/annotations", annotations)
}

#[tokio::test]
async fn labels_and_annotations_alone_get_a_board_from_kubernetes_1_36_on_and_the_line_before() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    let client = plane.client();
    for labels in [
        json!({"fpga-scheduling.io/fpga-vendor": "intel"}),
        json!({"fpga-scheduling.io/fpga-vendor": ""}),
        json!({"fpga-scheduling.io/board": "a10"}),
        json!({"fpga-scheduling.io/shell-version": "1.2"}),
        json!({ BOARD: "1" }),
    ] {
        assert_eq!(created(client, &labelled(labels.clone())).await, ours("main: 1"), "{labels}");
    }
    for key in [
        "blastfunction.io/vendor",
        "blastfunction.io/device",
        "blastfunction.io/accelerator",
        "blastfunction.io/acceleratorhash",
        "fpga-scheduling.io/bitstreams",
    ] {
        assert_eq!(created(client, &annotated(json!({ key: "x" }))).await, ours("main: 1"), "{key}");
    }
    let vendor = |number: &str| labelled(json!({"fpga-scheduling.io/fpga-vendor": "intel", BOARD: number}));
    assert_eq!(created(client, &vendor("2")).await, ours("main: 2"));
    assert_eq!(created(client, &vendor("0")).await, ordinary(""));
    assert_eq!(
        created(client, &annotated(json!({"fpga-scheduling.io/new-before-old": "true"}))).await,
        ordinary("")
    );
    for number in ["true", "100", "01", ""] {
        let texts =
            ["has the value", number, "write the number of boards there, from 1 to 99", "accelerated: \"1\""];
        refused(client, &[(labelled(json!({ BOARD: number })), &texts), (vendor(number), &texts)]).await;
    }
    let main = with(pod(board()), "/metadata/labels", json!({ BOARD: "true" }));
    assert_eq!(created(client, &main).await, ours("main: 1"), "the container says it");
    the_container_that_a_user_expects_gets_the_board(client).await;
    service_meshes_do_not_get_a_board(&plane).await;
    templates_are_judged_as_their_pods_will_be(&plane).await;
    a_changed_annotation_of_a_deployment_reaches_its_pods(&plane).await;
    before_kubernetes_1_36_the_line_is_told(&plane).await;
    plane.stop().await;
}

async fn the_container_that_a_user_expects_gets_the_board(client: &Client) {
    let of = |names: &[&str], annotations: Value| {
        let containers: Vec<_> = names.iter().map(|name| json!({"name": name, "image": "none"})).collect();
        with(
            with(labelled(json!({ BOARD: "1" })), "/spec/containers", json!(containers)),
            "/metadata/annotations",
            annotations,
        )
    };
    let default = |name: &str| json!({"kubectl.kubernetes.io/default-container": name});
    for (pod, boards) in [
        (of(&["app", "other"], json!({})), "app: 1"),
        (of(&["istio-proxy", "linkerd-proxy", "app", "other"], json!({})), "app: 1"),
        (of(&["unknown", "app"], default("app")), "app: 1"),
        (of(&["app"], default("gone")), "app: 1"),
        (
            of(
                &["a", "b", "c"],
                json!({"fpga-scheduling.io/container": "c", "kubectl.kubernetes.io/default-container": "b"}),
            ),
            "c: 1",
        ),
        (of(&["envoy"], json!({})), "envoy: 1"),
    ] {
        assert_eq!(created(client, &pod).await, ours(boards), "{pod}");
    }
    let wrong = of(&["a", "b"], json!({"fpga-scheduling.io/container": "c"}));
    refused(client, &[(wrong, &["fpga-scheduling.io/container has the value \"c\"", "a or b"])]).await;
    let mut second = of(&["proxy", "app"], json!({}));
    second["spec"]["containers"][1]["resources"] = board()["resources"].clone();
    assert_eq!(created(client, &second).await, ours("app: 1"), "no second container gets a board");
    let limited = with(
        labelled(json!({ BOARD: "1" })),
        "/spec/containers/0/resources",
        json!({"limits": {"cpu": "1"}}),
    );
    assert_eq!(created(client, &limited).await, ours("main: 1"));
}

/// A policy that puts this container first, and its binding.
fn mesh(name: &str, container: &str) -> [Value; 2] {
    let api_version = "admissionregistration.k8s.io/v1";
    let container = format!("Object.spec.containers{{name: \"{container}\", image: \"none\"}}");
    let insert = format!("[JSONPatch{{op: \"add\", path: \"/spec/containers/0\", value: {container}}}]");
    let rule =
        json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]});
    let in_mesh = "has(object.metadata.labels) && 'mesh' in object.metadata.labels";
    let spec = json!({
        "reinvocationPolicy": "Never",
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [rule]},
        "matchConditions": [{"name": "in-the-mesh", "expression": in_mesh}],
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": insert}}],
    });
    let object = |kind: &str, spec: Value| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, "spec": spec});
    [
        object("MutatingAdmissionPolicy", spec),
        object("MutatingAdmissionPolicyBinding", json!({"policyName": name})),
    ]
}

/// Further policies, which the API server calls in any order, put a container first, as the injectors of meshes do.
async fn service_meshes_do_not_get_a_board(plane: &ControlPlane) {
    let meshes = [("a-mesh", "istio-proxy"), ("z-mesh", "linkerd-proxy")];
    let policies: Vec<Value> =
        meshes.into_iter().flat_map(|(name, container)| mesh(name, container)).collect();
    let policies = json!({"apiVersion": "v1", "kind": "List", "items": policies});
    let file = plane.run_dir().path().join("mesh.json");
    std::fs::write(&file, policies.to_string()).unwrap();
    kubectl(plane, &["apply", "--server-side", "-f", file.to_str().unwrap()]).await.unwrap();
    let in_mesh = labelled(json!({ BOARD: "1", "mesh": "x" }));
    wait::until("the meshes to add their containers", async || {
        let spec = try_pod(plane.client(), &in_mesh).await?.spec.unwrap();
        Ok((spec.containers.len() == 3).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(created(plane.client(), &in_mesh).await, ours("main: 1"));
}

/// A Deployment whose pods have this metadata and this container.
fn deployment(annotations: Value, metadata: Value, container: Value) -> Value {
    let mut template = pod(container);
    template["metadata"] = metadata;
    template["metadata"]["labels"]["app"] = json!("a");
    let mut made = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "made"},
        "spec": {"selector": {"matchLabels": {"app": "a"}}, "template": template},
    });
    made["metadata"]["annotations"] = annotations;
    made
}

/// What kubectl says when it creates the object, with its warnings.
async fn create(plane: &ControlPlane, object: &Value) -> anyhow::Result<String> {
    let file = plane.run_dir().path().join("object.json");
    std::fs::write(&file, object.to_string())?;
    kubectl(plane, &["create", "--dry-run=server", "-o", "json", "-f", file.to_str().unwrap()]).await
}

async fn templates_are_judged_as_their_pods_will_be(plane: &ControlPlane) {
    let none = || json!({});
    for fine in [
        deployment(none(), none(), board()),
        deployment(none(), json!({"labels": { BOARD: "1" }}), none()),
        deployment(none(), none(), none()),
    ] {
        let text = create(plane, &fine).await.unwrap();
        assert!(!text.contains("Warning"), "{text}");
    }
    let wrong = deployment(none(), json!({"labels": { BOARD: "true" }}), none());
    let job = json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "made"}, "spec": {
        "schedule": "* * * * *", "jobTemplate": {"spec": {"template": {
            "metadata": wrong["spec"]["template"]["metadata"],
            "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]},
        }}},
    }});
    for wrong in [wrong, job] {
        let text = create(plane, &wrong).await.unwrap();
        assert!(text.contains("Warning: ") && text.contains("write the number of boards there"), "{text}");
    }
    // BlastFunction reads the annotations of a Deployment (B-7).
    let annotated = json!({"blastfunction.io/vendor": "altera", "blastfunction.io/device": "de5a_net_e1"});
    let own = json!({"annotations": {"blastfunction.io/vendor": "xilinx"}});
    for (metadata, vendor) in [(none(), "altera"), (own, "xilinx")] {
        let text = create(plane, &deployment(annotated.clone(), metadata, none())).await.unwrap();
        let made: Value = serde_json::from_str(&text).unwrap();
        let of_pods = json!({"blastfunction.io/vendor": vendor, "blastfunction.io/device": "de5a_net_e1"});
        assert_eq!(made["spec"]["template"]["metadata"]["annotations"], of_pods);
    }
}

/// The annotations of a Deployment's pods.
async fn of_pods(plane: &ControlPlane) -> Value {
    let text = kubectl(plane, &["get", "deployment", "changed", "-o", "json"]).await.unwrap();
    let made: Value = serde_json::from_str(&text).unwrap();
    made["spec"]["template"]["metadata"]["annotations"].clone()
}

/// BlastFunction reads the annotations of a Deployment also where somebody changes them later (B-7).
async fn a_changed_annotation_of_a_deployment_reaches_its_pods(plane: &ControlPlane) {
    let annotated = json!({"blastfunction.io/vendor": "altera", "blastfunction.io/device": "de5a_net_e1"});
    let own = json!({"annotations": {"blastfunction.io/device": "mine", "other": "x"}});
    let file = plane.run_dir().path().join("changed.json");
    let changed = with(deployment(annotated, own, json!({})), "/metadata/name", json!("changed"));
    std::fs::write(&file, changed.to_string()).unwrap();
    kubectl(plane, &["create", "-f", file.to_str().unwrap()]).await.unwrap();
    for (change, vendor) in [
        (&["blastfunction.io/vendor=xilinx"][..], Some("xilinx")),
        (&["unrelated=x", "blastfunction.io/device=changed"], Some("xilinx")),
        (&["blastfunction.io/vendor-", "blastfunction.io/device-"], None),
        (&["blastfunction.io/vendor=intel"], Some("intel")),
    ] {
        kubectl(plane, &[&["annotate", "--overwrite", "deployment", "changed"], change].concat())
            .await
            .unwrap();
        let mut expected = json!({"blastfunction.io/device": "mine", "other": "x"});
        if let Some(vendor) = vendor {
            expected["blastfunction.io/vendor"] = json!(vendor);
        }
        assert_eq!(of_pods(plane).await, expected, "{change:?}");
    }
}

/// With what the chart renders for an older cluster.
async fn before_kubernetes_1_36_the_line_is_told(plane: &ControlPlane) {
    let chart = [
        "template",
        RELEASE,
        "manifests/chart",
        "--namespace",
        NAMESPACE,
        "--kube-version=v1.35.2",
        "--set=scheduler.version=v1.35.2",
    ];
    let (well, text) =
        helm(None, &[&chart[..], &["--show-only", "templates/admission/validate.yaml"]].concat()).await;
    assert!(well, "{text}");
    let file = plane.run_dir().path().join("older.yaml");
    std::fs::write(&file, text).unwrap();
    kubectl(plane, &["delete", "mutatingadmissionpolicybindings", "--all"]).await.unwrap();
    kubectl(plane, &["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()])
        .await
        .unwrap();
    let client = plane.client();
    wait::until("the policies of an older cluster to hold", async || {
        let told = try_pod(client, &pod(board())).await.err().map(|error| error.to_string());
        let alone = deployment(json!({"blastfunction.io/vendor": "x"}), json!({}), json!({}));
        let of_deployments = create(plane, &alone).await.is_err();
        Ok(told.filter(|told| told.contains("does not ask kube-fpga") && of_deployments).map(drop))
    })
    .await
    .unwrap();
    let named = |pod: Value| with(pod, "/spec/schedulerName", json!("kube-fpga"));
    let of_ours = ("kube-fpga".to_owned(), 0, "main: 1".to_owned());
    assert_eq!(created(client, &named(pod(board()))).await, of_ours);
    assert_eq!(created(client, &pod(quantity(BOARD, json!(0)))).await, ordinary("main: 0"));
    assert_eq!(created(client, &labelled(json!({ BOARD: "0" }))).await, ordinary(""));
    const SCHEDULER: &str = "schedulerName: kube-fpga";
    refused(
        client,
        &[
            (pod(board()), &["its scheduler default-scheduler does not ask", SCHEDULER]),
            (
                with(pod(board()), "/spec/schedulerName", json!("other")),
                &["its scheduler other does not ask", SCHEDULER],
            ),
            (
                labelled(json!({ BOARD: "1" })),
                &["has the label fpga-scheduling.io/accelerated", LINE, SCHEDULER, "1.36"],
            ),
            (
                labelled(json!({ BOARD: "true" })),
                &["has the label fpga-scheduling.io/accelerated", LINE, SCHEDULER, "1.36"],
            ),
            (
                labelled(json!({"fpga-scheduling.io/fpga-vendor": "x"})),
                &["has the label fpga-scheduling.io/fpga-vendor", LINE, SCHEDULER],
            ),
            (
                annotated(json!({"blastfunction.io/vendor": "x"})),
                &["has the annotation blastfunction.io/vendor", LINE, SCHEDULER],
            ),
            (
                named(annotated(json!({"fpga-scheduling.io/bitstreams": "x"}))),
                &["has the annotation fpga-scheduling.io/bitstreams", LINE],
            ),
        ],
    )
    .await;
    let warned = create(plane, &deployment(json!({}), json!({}), board())).await.unwrap();
    assert!(warned.contains("Warning: ") && warned.contains(SCHEDULER), "{warned}");
    const TO_PODS: &str = "write it into spec.template.metadata.annotations";
    let error = create(plane, &deployment(json!({"blastfunction.io/vendor": "x"}), json!({}), json!({})))
        .await
        .unwrap_err();
    assert!(error.to_string().contains(TO_PODS), "{error}");
    // The Deployment of the newer policy has the vendor in its template.
    for change in ["blastfunction.io/vendor=other", "blastfunction.io/platform=p"] {
        let annotate = ["annotate", "--overwrite", "deployment", "changed", change];
        let error = kubectl(plane, &annotate).await.unwrap_err();
        assert!(error.to_string().contains(TO_PODS), "{change}: {error}");
    }
    kubectl(plane, &["annotate", "deployment", "changed", "again=x"]).await.unwrap();
}
