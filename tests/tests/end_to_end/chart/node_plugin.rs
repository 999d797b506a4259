//! What the chart lets a node plugin write: the boards of pods on its own node.

use super::{NAMESPACE, RELEASE, board, install, pod};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::{self, kubectl};
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

const BOARDS: &str = "fpga-scheduling.io/boards";
const BOARDS_REASON: &str = "fpga-scheduling.io/boards-reason";

/// A client with the token of a node plugin's pod on this node.
async fn plugin_on(plane: &ControlPlane, node: &str) -> Client {
    let name = format!("plugin-on-{node}");
    manifests::create_pod_in(plane.client(), NAMESPACE, &name, "fpga-node-plugin", Some(node)).await.unwrap();
    let token =
        manifests::token_in(plane.client(), NAMESPACE, "fpga-node-plugin", Some(&name)).await.unwrap();
    manifests::client(plane, &token).await.unwrap()
}

#[tokio::test]
async fn a_node_plugin_writes_the_boards_of_pods_on_its_own_node_and_nothing_else() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), "default");
    for (name, node) in [("mine", Some("n1")), ("theirs", Some("n2")), ("nobodys", None)] {
        let mut pod = pod(board());
        pod["metadata"] = json!({"name": name, "annotations": {"other": "x"}, "labels": {"app": "a"}});
        if let Some(node) = node {
            pod["spec"]["nodeName"] = json!(node);
        }
        pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }
    let plugin: Api<Pod> = Api::namespaced(plugin_on(&plane, "n1").await, "default");
    let patch = async |name: &str, patch: Value| {
        plugin.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await
    };
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": { key: value }}});
    // The policies of a chart come into force one after the other.
    wait::until("the policy of node plugins to hold", async || {
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let refused = plugin.patch("mine", &dry_run, &Patch::Merge(annotate("other", json!("y")))).await;
        Ok(refused.err().filter(|error| error.to_string().contains("no annotation but")).map(drop))
    })
    .await
    .unwrap();
    for boards in [json!("pocl-0"), json!("pocl-0,pocl-1"), Value::Null] {
        let pod = patch("mine", annotate(BOARDS, boards.clone())).await.unwrap();
        let annotations = pod.metadata.annotations.unwrap();
        assert_eq!(annotations.get(BOARDS).map(String::as_str), boards.as_str());
        assert_eq!(annotations["other"], "x");
    }
    let told = patch("mine", annotate(BOARDS_REASON, json!("main: pocl-0 (0 % used, 0 containers)"))).await;
    assert!(told.unwrap().metadata.annotations.unwrap().contains_key(BOARDS_REASON));
    for (name, wrong, because) in [
        ("theirs", annotate(BOARDS, json!("pocl-0")), "only pods of the node that it runs on"),
        ("nobodys", annotate(BOARDS, json!("pocl-0")), "only pods of the node that it runs on"),
        ("mine", annotate("other", json!("y")), "no annotation but"),
        ("mine", annotate("other", Value::Null), "no annotation but"),
        ("mine", annotate("more", json!("y")), "no annotation but"),
        ("mine", json!({"metadata": {"labels": {"app": "b"}}}), "neither labels nor"),
        ("mine", json!({"metadata": {"finalizers": ["a.example/b"]}}), "neither labels nor"),
        (
            "mine",
            json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "x"}]}}),
            "neither labels nor",
        ),
        ("mine", json!({"spec": {"activeDeadlineSeconds": 1}}), "neither labels nor"),
    ] {
        let error = patch(name, wrong.clone()).await.expect_err(because).to_string();
        assert!(error.contains(because), "{wrong} on {name}: {error}");
    }
    let mut image = json!({"spec": {"containers": [{"name": "main", "image": "evil"}]}});
    let error = plugin.patch("mine", &PatchParams::default(), &Patch::Strategic(&image)).await.unwrap_err();
    assert!(error.to_string().contains("neither labels nor"), "{error}");
    image["metadata"] = json!({"annotations": {BOARDS: "pocl-0"}});
    plugin.patch("mine", &PatchParams::default(), &Patch::Strategic(&image)).await.unwrap_err();
    // The role by another name, and in one namespace only.
    let binding = ["create", "rolebinding", "other", "--serviceaccount=default:default"];
    let role = format!("--clusterrole={RELEASE}:node-plugin");
    kubectl(&plane, &[&binding[..], &[role.as_str(), "--namespace=default"]].concat()).await.unwrap();
    let user = "--as=system:serviceaccount:default:default";
    let label = ["label", "pod", "theirs", "any=label", "--dry-run=server", user];
    wait::until("the binding to hold", async || {
        let refused = kubectl(&plane, &label).await.expect_err("it is on no node").to_string();
        Ok(refused.contains("only pods of the node that it runs on").then_some(()))
    })
    .await
    .unwrap();

    let forbidden = |result: kube::Result<()>| {
        let error = result.expect_err("it has no right to").to_string();
        assert!(error.contains("forbidden"), "{error}");
    };
    forbidden(plugin.list(&Default::default()).await.map(drop));
    forbidden(plugin.delete("mine", &Default::default()).await.map(drop));
    let new = serde_json::from_value(pod(json!({}))).unwrap();
    forbidden(plugin.create(&PostParams::default(), &new).await.map(drop));
    let status = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    forbidden(plugin.patch_status("mine", &PatchParams::default(), &status).await.map(drop));
    nobody_else_says_which_boards_a_pod_has(&plane).await;
    no_template_says_which_boards_its_pods_have(&plane).await;
    events_are_on_pods_of_the_plugins_own_node(plugin.into_client()).await;
    plane.stop().await;
}

async fn nobody_else_says_which_boards_a_pod_has(plane: &ControlPlane) {
    let admin: Api<Pod> = Api::namespaced(plane.client().clone(), "default");
    let annotate = |key: &str, value: Value| json!({"metadata": {"annotations": { key: value }}});
    let only = |what: &str, result: kube::Result<()>| {
        let error = result.expect_err(what).to_string();
        assert!(error.contains("only the node plugin writes it"), "{what}: {error}");
    };
    let merge = PatchParams::default();
    wait::until("the policy of boards to hold", async || {
        let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
        let lie = Patch::Merge(annotate(BOARDS, json!("theirs-0")));
        Ok(admin.patch("mine", &dry_run, &lie).await.err().map(drop))
    })
    .await
    .unwrap();
    for (pod, key, value) in [
        ("mine", BOARDS, json!("theirs-0")),
        ("mine", BOARDS, json!("")),
        ("nobodys", BOARDS, json!("theirs-0")),
        ("nobodys", BOARDS_REASON, json!("because")),
        ("mine", BOARDS_REASON, Value::Null),
    ] {
        let lie = Patch::Merge(annotate(key, value));
        only("an administrator", admin.patch(pod, &merge, &lie).await.map(drop));
        only("the status", admin.patch_status(pod, &merge, &lie).await.map(drop));
    }
    // Other changes of a pod with boards.
    admin.patch("mine", &merge, &Patch::Merge(annotate("other", json!("z")))).await.unwrap();
    let status = json!({"status": {"phase": "Running"}});
    admin.patch_status("mine", &merge, &Patch::Merge(status)).await.unwrap();
    let mut new = pod(json!({}));
    for key in [BOARDS, BOARDS_REASON] {
        new["metadata"]["annotations"] = json!({ key: "theirs-0" });
        let new = serde_json::from_value(new.clone()).unwrap();
        only("a new pod", admin.create(&PostParams::default(), &new).await.map(drop));
    }
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "target": {"kind": "Node", "name": "n1"},
        "metadata": {"name": "nobodys", "annotations": {BOARDS: "theirs-0"}},
    });
    let bound = admin
        .create_subresource::<Value, Value>("binding", "nobodys", &PostParams::default(), &binding)
        .await;
    only("a binding", bound.map(drop));
    // A tenant with all rights in the namespace, with those of a node plugin besides, and with a pod on the node.
    let role =
        ["create", "rolebinding", "all", "--clusterrole=cluster-admin", "--serviceaccount=default:default"];
    for arguments in [&role[..], &["delete", "rolebinding", "all"]] {
        kubectl(plane, &[arguments, &["--namespace=default"]].concat()).await.unwrap();
        let name = plane.unique("tenant");
        manifests::create_pod_in(plane.client(), "default", &name, "default", Some("n1")).await.unwrap();
        let token = manifests::token_in(plane.client(), "default", "default", Some(&name)).await.unwrap();
        let tenant: Api<Pod> = Api::namespaced(manifests::client(plane, &token).await.unwrap(), "default");
        let lie = Patch::Merge(annotate(BOARDS, json!("theirs-0")));
        only("a tenant", tenant.patch("mine", &merge, &lie).await.map(drop));
    }
}

async fn no_template_says_which_boards_its_pods_have(plane: &ControlPlane) {
    let template = json!({
        "metadata": {"labels": {"app": "a"}, "annotations": {BOARDS: "theirs-0"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "none"}]},
    });
    let mut running = template.clone();
    running["spec"]["restartPolicy"] = json!("Always");
    let selected = json!({"selector": {"matchLabels": {"app": "a"}}, "template": running});
    let job = json!({"template": template});
    let cron = json!({"schedule": "* * * * *", "jobTemplate": {"spec": job}});
    let controller = json!({"selector": {"app": "a"}, "template": running});
    for (api_version, kind, spec) in [
        ("apps/v1", "Deployment", &selected),
        ("apps/v1", "ReplicaSet", &selected),
        ("apps/v1", "StatefulSet", &selected),
        ("apps/v1", "DaemonSet", &selected),
        ("batch/v1", "Job", &job),
        ("batch/v1", "CronJob", &cron),
        ("v1", "ReplicationController", &controller),
        ("v1", "PodTemplate", &Value::Null),
    ] {
        let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "made"}});
        let place = if spec.is_null() { "template" } else { "spec" };
        object[place] = if spec.is_null() { running.clone() } else { spec.clone() };
        let file = plane.run_dir().path().join("template.json");
        std::fs::write(&file, object.to_string()).unwrap();
        let create = ["create", "--dry-run=server", "-f", file.to_str().unwrap()];
        let error = kubectl(plane, &create).await.expect_err(kind).to_string();
        assert!(error.contains("leave it out of the template"), "{kind}: {error}");
    }
}

/// A change of an event before it is written.
type Change = fn(&mut Value);

async fn events_are_on_pods_of_the_plugins_own_node(plugin: Client) {
    let events: Api<Event> = Api::namespaced(plugin, "default");
    let create = async |change: Change| {
        let mut event = json!({
            "metadata": {
                "generateName": "refused-", "namespace": "default",
                "labels": {"app.kubernetes.io/managed-by": "fpga-node-plugin"},
            },
            "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "fpga-scheduling.io/node-plugin",
            "reportingInstance": "n1", "action": "Load", "reason": "BitstreamRefused", "type": "Warning",
            "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "mine", "namespace": "default"},
        });
        change(&mut event);
        events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await
    };
    const OWN_NODE: &str = "on pods of the node that it runs on";
    let theirs: Change = |event| event["regarding"]["name"] = json!("theirs");
    let kubelets: Change = |event| event["reportingController"] = json!("kubelet");
    for (change, because) in [(theirs, OWN_NODE), (kubelets, "in its own name")] {
        wait::until("the policy of events to hold", async || {
            Ok(create(change).await.err().filter(|error| error.to_string().contains(because)).map(drop))
        })
        .await
        .unwrap();
    }
    create(|_| {}).await.unwrap();
    create(|event| event["regarding"]["name"] = json!("gone-meanwhile")).await.unwrap();
    let wrong: [(Change, &str); 6] = [
        (theirs, OWN_NODE),
        (|event| event["regarding"]["name"] = json!("nobodys"), OWN_NODE),
        // Of no pod that is there, or else both policies refuse the event, with either's reason.
        (
            |event| {
                event["reportingInstance"] = json!("n2");
                event["regarding"]["name"] = json!("gone-meanwhile");
            },
            "that of the node that it runs on",
        ),
        (kubelets, "in its own name"),
        (|event| event["regarding"]["kind"] = json!("Service"), "on pods only"),
        (|event| event["metadata"]["labels"] = json!({}), "has the label"),
    ];
    for (change, because) in wrong {
        let error = create(change).await.expect_err(because).to_string();
        assert!(error.contains(because), "{because}: {error}");
    }
}
