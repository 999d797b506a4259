//! The manifests and configurations that users apply, on a real API server and a real kube-scheduler: manifests/ and
//! scheduler-config/.

use anyhow::Result;
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::manifests::{self, NAMESPACE, apply, kubectl};
use fpga_tests::testbed::programs::{self, built};
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};

const COLLECTOR: &str = "fpga-collector";
const STATE: &str = "fpga-scheduling.io/node-state";

/// A client with the token of a collector's pod on this node, as the DaemonSet creates it.
async fn collector_on(plane: &ControlPlane, node: &str) -> Result<Client> {
    let pod = format!("collector-on-{node}");
    manifests::create_pod(plane.client(), &pod, COLLECTOR, Some(node)).await?;
    manifests::client(plane, &manifests::token(plane.client(), COLLECTOR, Some(&pod)).await?).await
}

fn owner(name: &str) -> Value {
    json!({"apiVersion": "cluster.example/v1", "kind": "Machine", "name": name, "uid": name})
}

/// Creates a node that already has an annotation, a label and an owner of others.
async fn create_node(client: &Client, name: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = json!({"metadata": {
        "name": name, "annotations": {"other": "x"}, "labels": {"zone": "a"}, "ownerReferences": [owner("machine")],
    }});
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    Ok(())
}

/// Publishes a state as the collector does.
async fn publish(client: &Client, node: &str, annotations: Value) -> kube::Result<Node> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch =
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "annotations": annotations}});
    nodes.patch(node, &PatchParams::apply(COLLECTOR).force(), &Patch::Apply(&patch)).await
}

/// Waits until the API server enforces a new policy, which takes a moment.
async fn until_policy_holds(nodes: &Api<Node>, node: &str) -> Result<()> {
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let label = json!({"metadata": {"labels": {"any": "label"}}});
    wait::until("the policy to hold", async || {
        let refused =
            nodes.patch(node, &dry_run, &Patch::Merge(&label)).await.err().map(|error| error.to_string());
        // A role binding takes a moment, too: until then the answer is "forbidden" for another reason.
        Ok(refused.filter(|reason| reason.contains("ValidatingAdmissionPolicy")).map(drop))
    })
    .await
}

fn assert_refused<T: std::fmt::Debug>(what: &str, result: kube::Result<T>, because: &str) {
    let error = result.expect_err(what).to_string();
    assert!(error.contains(because), "{what}: {error}");
}

#[tokio::test]
async fn a_real_api_server_takes_all_manifests_and_warns_of_nothing() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    let example = programs::repository().join("manifests/examples/sobel");
    let example = ["apply", "--server-side", "--validate=strict", "-k", example.to_str().unwrap()];
    let outputs = [
        apply(&plane, "pocl").await.unwrap(),
        apply(&plane, "label-node").await.unwrap(),
        apply(&plane, "cluster-scheduler").await.unwrap(),
        apply(&plane, "router").await.unwrap(),
        apply(&plane, "registry").await.unwrap(),
        apply(&plane, "pool").await.unwrap(),
        kubectl(&plane, &example).await.unwrap(),
    ];
    for output in outputs {
        assert!(output.contains("serverside-applied"), "{output}");
        assert!(!output.contains("Warning"), "{output}");
    }
    plane.stop().await;
}

/// The `--help` text of the program that a container runs; of a supervisor, also that of the managers that it starts.
async fn help(container: &Value) -> String {
    let image = container["image"].as_str().unwrap();
    let program = image.strip_prefix("kube-fpga/").unwrap().split(':').next().unwrap();
    // The runtime in the image is no part of the program's name.
    let program = program.strip_suffix("-pocl").unwrap_or(program);
    let mut command = tokio::process::Command::new(built(program).unwrap());
    // A program with several commands takes the command as its first argument.
    let first = container["args"][0].as_str().filter(|argument| !argument.starts_with('-'));
    let output = command.args(first).arg("--help").output().await.unwrap();
    let mut help = String::from_utf8(output.stdout).unwrap();
    if first == Some("supervise") {
        let output = tokio::process::Command::new(built(program).unwrap()).args(["serve", "--help"]).output();
        help += &String::from_utf8(output.await.unwrap().stdout).unwrap();
    }
    help
}

#[tokio::test]
async fn every_setting_in_the_manifests_is_one_that_the_program_knows() {
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "router").await.unwrap();
    apply(&plane, "registry").await.unwrap();
    apply(&plane, "pool").await.unwrap();
    let list = ["get", "deployments,daemonsets,configmaps", "-n", NAMESPACE, "-o", "json"];
    let list: Value = serde_json::from_str(&kubectl(&plane, &list).await.unwrap()).unwrap();
    let items = list["items"].as_array().unwrap();
    let mut settings = 0;
    for item in items {
        let spec = &item["spec"]["template"]["spec"];
        let containers = spec["containers"].as_array().into_iter().flatten();
        let sidecars = spec["initContainers"].as_array().into_iter().flatten();
        let sidecars = sidecars.filter(|container| container["restartPolicy"] == "Always");
        let ours = |container: &&Value| {
            container["image"].as_str().is_some_and(|image| image.starts_with("kube-fpga/"))
        };
        for container in containers.chain(sidecars).filter(ours) {
            let help = help(container).await;
            let named = container["env"].as_array().into_iter().flatten();
            let mut names: Vec<String> = named.map(|env| env["name"].as_str().unwrap().to_owned()).collect();
            for from in container["envFrom"].as_array().into_iter().flatten() {
                let name = &from["configMapRef"]["name"];
                let map = items
                    .iter()
                    .find(|item| item["kind"] == "ConfigMap" && &item["metadata"]["name"] == name);
                names.extend(map.unwrap()["data"].as_object().unwrap().keys().cloned());
            }
            for name in names.iter().filter(|name| name.starts_with("FPGA_")) {
                assert!(help.contains(&format!("[env: {name}=")), "{name} is no setting of:\n{help}");
                settings += 1;
            }
            for argument in container["args"].as_array().into_iter().flatten() {
                let flag = argument.as_str().unwrap().split('=').next().unwrap();
                assert!(help.contains(flag), "{flag} is no argument of:\n{help}");
            }
        }
    }
    assert!(settings > 8, "only {settings} settings were found");
    plane.stop().await;
}

#[tokio::test]
async fn a_collector_changes_the_state_of_its_own_node_and_nothing_else() {
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "pocl").await.unwrap();
    let admin = plane.client();
    let [mine, theirs] = ["mine", "theirs"].map(|prefix| plane.unique(prefix));
    create_node(admin, &mine).await.unwrap();
    create_node(admin, &theirs).await.unwrap();
    let collector = collector_on(&plane, &mine).await.unwrap();
    let nodes: Api<Node> = Api::all(collector.clone());
    until_policy_holds(&nodes, &mine).await.unwrap();

    for state in ["first", "second"] {
        let node = publish(&collector, &mine, json!({ STATE: state })).await.unwrap();
        let annotations = node.metadata.annotations.unwrap();
        assert_eq!(annotations.get(STATE).map(String::as_str), Some(state));
        assert_eq!(annotations.get("other").map(String::as_str), Some("x"));
    }

    assert_refused(
        "another node's state",
        publish(&collector, &theirs, json!({ STATE: "lie" })).await,
        "only the node that it runs on",
    );
    assert_refused(
        "another annotation",
        publish(&collector, &mine, json!({ STATE: "third", "more": "y" })).await,
        "no annotation but",
    );
    let merge = PatchParams::default();
    for (what, patch, because) in [
        ("another's annotation", json!({"metadata": {"annotations": {"other": "y"}}}), "no annotation but"),
        (
            "removing an annotation",
            json!({"metadata": {"annotations": {"other": null}}}),
            "no annotation but",
        ),
        ("a label", json!({"metadata": {"labels": {"fpga-scheduling.io/board": "b"}}}), "changes no label"),
        ("a taint", json!({"spec": {"unschedulable": true}}), "the specification"),
        ("another owner", json!({"metadata": {"ownerReferences": [owner("evil")]}}), "the specification"),
        ("no owner", json!({"metadata": {"ownerReferences": null}}), "the specification"),
    ] {
        assert_refused(what, nodes.patch(&mine, &merge, &Patch::Merge(&patch)).await, because);
    }
    let created = publish(&collector, &plane.unique("new"), json!({ STATE: "x" })).await;
    assert_refused("a node that is not there", created, "forbidden");
    let pods: Api<Pod> = Api::all(collector.clone());
    assert_refused("listing pods", pods.list(&Default::default()).await, "forbidden");
    assert_refused("deleting a node", nodes.delete(&mine, &Default::default()).await, "forbidden");
    plane.stop().await;
}

#[tokio::test]
async fn an_extender_changes_the_version_of_the_library_on_nodes_and_nothing_else() {
    const VERSION: &str = "fpga-scheduling.io/library-version";
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "pocl").await.unwrap();
    let mine = plane.unique("mine");
    create_node(plane.client(), &mine).await.unwrap();
    let token = manifests::token(plane.client(), "fpga-scheduler-extender", None).await.unwrap();
    let nodes: Api<Node> = Api::all(manifests::client(&plane, &token).await.unwrap());
    let merge = PatchParams::default();
    let annotate = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    let change = async |patch: &Value| nodes.patch(&mine, &merge, &Patch::Merge(patch)).await;
    until_policy_holds(&nodes, &mine).await.unwrap();
    let mut revisions = Vec::new();
    for value in ["0123", "4567", "4567"] {
        let node = change(&annotate(json!({ VERSION: value }))).await.unwrap();
        assert_eq!(node.metadata.annotations.unwrap()[VERSION], value);
        revisions.push(node.metadata.resource_version.unwrap());
    }
    assert!(revisions[0] != revisions[1] && revisions[1] == revisions[2], "a second write changes nothing");
    for (what, patch, because) in [
        ("another annotation", annotate(json!({ "more": "y" })), "no annotation but"),
        ("a node's state", annotate(json!({ STATE: "lie" })), "no annotation but"),
        ("a label", json!({"metadata": {"labels": {"fpga-scheduling.io/board": "b"}}}), "neither labels nor"),
        ("a taint", json!({"spec": {"unschedulable": true}}), "neither labels nor"),
        ("another owner", json!({"metadata": {"ownerReferences": [owner("evil")]}}), "neither labels nor"),
    ] {
        assert_refused(what, change(&patch).await, because);
    }
    assert_refused("deleting a node", nodes.delete(&mine, &Default::default()).await, "forbidden");
    let status = Patch::Merge(json!({"status": {"phase": "Running"}}));
    assert_refused("a status", nodes.patch_status(&mine, &merge, &status).await, "forbidden");
    plane.stop().await;
}

#[tokio::test]
async fn where_collectors_may_label_they_give_their_own_node_three_labels_and_no_other() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    apply(&plane, "label-node").await.unwrap();
    let admin = plane.client();
    create_node(admin, "mine").await.unwrap();
    create_node(admin, "theirs").await.unwrap();
    let collector = collector_on(&plane, "mine").await.unwrap();
    let nodes: Api<Node> = Api::all(collector.clone());
    until_policy_holds(&nodes, "mine").await.unwrap();

    let apply = PatchParams::apply("fpga-collector-labels").force();
    let vendor = "fpga-scheduling.io/fpga-vendor";
    let patch = |node: &str, labels: Value| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "labels": labels}});
    for labels in [
        json!({vendor: "intel", "fpga-scheduling.io/shell-version": "1.2", "fpga-scheduling.io/board": "a10"}),
        json!({}),
    ] {
        let node = nodes.patch("mine", &apply, &Patch::Apply(patch("mine", labels.clone()))).await.unwrap();
        let has = node.metadata.labels.unwrap_or_default();
        assert_eq!(has.get(vendor).map(String::as_str), labels[vendor].as_str(), "{has:?}");
        publish(&collector, "mine", json!({ STATE: "as before" })).await.unwrap();
    }
    let label = nodes.patch("mine", &apply, &Patch::Apply(patch("mine", json!({"zone": "b"})))).await;
    assert_refused("another label", label, "no label but");
    let label = nodes.patch("theirs", &apply, &Patch::Apply(patch("theirs", json!({vendor: "intel"})))).await;
    assert_refused("another node's label", label, "only the node that it runs on");
    let taint = json!({"spec": {"unschedulable": true}});
    let taint = nodes.patch("mine", &PatchParams::default(), &Patch::Merge(&taint)).await;
    assert_refused("a taint", taint, "does not change the specification");
    plane.stop().await;
}

#[tokio::test]
async fn a_collector_in_another_namespace_is_bound_by_the_policy_too() {
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "pocl").await.unwrap();
    let mine = plane.unique("mine");
    create_node(plane.client(), &mine).await.unwrap();
    let elsewhere = plane.new_namespace("elsewhere").await.unwrap();
    for account in ["fpga-collector", "by-another-name"] {
        let subject = format!("--serviceaccount={elsewhere}:{account}");
        let binding = [
            "create",
            "clusterrolebinding",
            &plane.unique(account),
            "--clusterrole=kube-fpga:collector",
            subject.as_str(),
        ];
        kubectl(&plane, &binding).await.unwrap();
        let user = format!("--as=system:serviceaccount:{elsewhere}:{account}");
        let label = ["label", "node", &mine, "--overwrite", "--dry-run=server", "any=label", user.as_str()];
        wait::until("the policy to hold", async || {
            let error = kubectl(&plane, &label).await.err().map(|error| error.to_string());
            let policy = "ValidatingAdmissionPolicy 'kube-fpga-collector-own-node'";
            Ok(error.filter(|error| error.contains(policy) && error.contains("denied request")).map(drop))
        })
        .await
        .unwrap();
    }
    plane.stop().await;
}

#[test]
fn the_shipped_configurations_of_kube_scheduler_ask_the_extender_alike_and_elect_a_leader() {
    let read = |file: &str| std::fs::read_to_string(programs::repository().join(file)).unwrap();
    let lines = |text: &str| -> Vec<String> {
        let after = text.split("\nextenders:\n").nth(1).unwrap();
        let lines = after.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        lines.map(str::to_owned).collect()
    };
    // In the manifests it is an indented value of a ConfigMap.
    let own = read("manifests/rendered/pocl.yaml");
    let own = own.split_once("\n  kube-scheduler.yaml: |\n").unwrap().1.lines();
    let own = own.map_while(|line| line.strip_prefix("    ")).collect::<Vec<_>>().join("\n");
    let cluster = read("scheduler-config/kube-scheduler.yaml");
    // Node plugins advertise the resource; by hand no node does.
    let by_hand = lines(&own)
        .iter()
        .map(|line| line.replace("Scheduler: false", "Scheduler: true"))
        .collect::<Vec<_>>();
    assert_eq!(by_hand, lines(&cluster));
    // For HTTPS only the extender's address and its authentication differ.
    let https = read("scheduler-config/kube-scheduler.https.yaml");
    let (after, other) = (lines(&https), lines(&own));
    assert_eq!(after.split_at(7).1, other.split_at(1).1, "{after:?}");
    for text in [own, cluster, https, read("scheduler-config/kube-scheduler.label-only.yaml")] {
        assert!(text.contains("  leaderElect: true\n"), "{text}");
    }
}

#[tokio::test]
async fn a_real_kube_scheduler_takes_both_wirings() {
    let mut plane = ControlPlane::start(&[]).await.unwrap();
    let url = "http://127.0.0.1:9";
    for config in [SchedulerConfig::shipped(url).unwrap(), SchedulerConfig::label_only(url).unwrap()] {
        plane.start_scheduler(&config).await.unwrap();
        plane.check_running().unwrap();
    }
    plane.stop().await;
}

#[tokio::test]
async fn the_extender_may_tell_by_an_event_on_its_pod_that_it_refuses_its_configuration() {
    const EXTENDER: &str = "fpga-scheduler-extender";
    let plane = ControlPlane::shared().await.unwrap();
    apply(&plane, "pocl").await.unwrap();
    let pod = &plane.unique("extender");
    manifests::create_pod(plane.client(), pod, EXTENDER, None).await.unwrap();
    let token = manifests::token(plane.client(), EXTENDER, Some(pod)).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (kubeconfig, config) = (folder.path().join("kubeconfig"), folder.path().join("extender.yaml"));
    std::fs::write(
        &kubeconfig,
        serde_json::to_string(&manifests::kubeconfig(&plane, &token).unwrap()).unwrap(),
    )
    .unwrap();
    std::fs::write(&config, "weights: 1-2-2\n").unwrap();
    let ready = folder.path().join("ready");
    let mut extender = tokio::process::Command::new(built(EXTENDER).unwrap())
        .args(["--listen", "127.0.0.1:0", "--pod-name", pod, "--pod-namespace", NAMESPACE])
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .arg("--config")
        .arg(&config)
        .arg("--ready-file")
        .arg(&ready)
        .kill_on_drop(true)
        .spawn()
        .unwrap();
    let started = async || Ok(ready.exists().then_some(()));
    wait::until("the extender to start", started).await.unwrap();
    std::fs::write(&config, "weights:\n  usage: -1\n").unwrap();
    let events: Api<Event> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let refused = wait::until("the event", async || {
        let events = events.list(&Default::default()).await?;
        Ok(events.into_iter().find(|event| {
            let of_pod = event.regarding.as_ref().and_then(|object| object.name.as_ref()) == Some(pod);
            of_pod && event.reason.as_deref() == Some("ConfigurationRefused")
        }))
    });
    let event = refused.await.unwrap();
    let note = event.note.unwrap();
    assert!(note.contains("extender.yaml:2:10: ") && note.contains("-1 is not a weight"), "{note}");
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    extender.kill().await.unwrap();
    plane.stop().await;
}
