//! Upgrades, and what an uninstalled chart leaves behind: nothing, and not before all boards are free.

use super::{NAMESPACE, RELEASE, board, helm, install, pod, render};
use fpga_test_kit::patience;
use fpga_tests::testbed::certificates;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::documents::{self, Runner, Shell};
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Waits until each namespace has what controllers put into it.
async fn until_namespaces_are_furnished(plane: &ControlPlane) {
    let namespaces: Api<Namespace> = Api::all(plane.client().clone());
    for namespace in namespaces.list(&ListParams::default()).await.unwrap() {
        let name = namespace.name_any();
        let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().clone(), &name);
        let maps: Api<ConfigMap> = Api::namespaced(plane.client().clone(), &name);
        wait::until("the namespace's service account and authority", async || {
            let both = accounts.get_opt("default").await?.zip(maps.get_opt("kube-root-ca.crt").await?);
            Ok(both.map(drop))
        })
        .await
        .unwrap();
    }
}

/// All objects of the API server, but for those that come and go by themselves.
async fn objects(plane: &ControlPlane) -> BTreeSet<String> {
    let kinds = kubectl(plane, &["api-resources", "--verbs=list", "-o", "name"]).await.unwrap();
    let passing = ["events", "leases", "endpoints", "endpointslices", "componentstatuses"];
    let kinds = kinds.lines().filter(|kind| !passing.contains(&kind.split('.').next().unwrap()));
    let kinds = kinds.collect::<Vec<_>>().join(",");
    let of_all = ["get", &kinds, "--all-namespaces", "--ignore-not-found", "--no-headers"];
    let columns = "-o=custom-columns=KIND:.kind,NAMESPACE:.metadata.namespace,NAME:.metadata.name";
    let text = kubectl(plane, &[&of_all[..], &[columns]].concat()).await.unwrap();
    let lines = text.lines().filter(|line| !line.starts_with("Warning"));
    let objects = lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
    // Each controller makes an account of its own when it starts.
    objects.filter(|object| !object.starts_with("ServiceAccount kube-system ")).collect()
}

#[tokio::test]
async fn an_upgrade_keeps_the_certificates_and_an_uninstalled_chart_leaves_nothing_in_the_api() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    kubectl(&plane, &["create", "namespace", NAMESPACE]).await.unwrap();
    until_namespaces_are_furnished(&plane).await;
    let before = objects(&plane).await;
    let settings = "monitoring.annotations=true,resourceQuota.create=true,uninstall.guard=false,\
                    customResources.keep=false,router.enabled=true,registry.enabled=true,registry.moves.mode=evict,\
                    pool.enabled=true";
    install(&plane, &["--set", settings]).await;
    assert!(objects(&plane).await.len() > before.len() + 20);

    let data = async |name: &str| certificates::secret(&plane, NAMESPACE, name).await.unwrap();
    assert!(data("fpga-extender-stream-tls").await.is_empty(), "the release has no keys");
    certificates::make(&plane, NAMESPACE).await.unwrap();
    let at_first = data("fpga-extender-stream-tls").await;
    let tickets_at_first = data("fpga-pool-ticket-key").await;
    assert!(at_first.contains_key("tls.key") && tickets_at_first.contains_key("key"));
    assert_ne!(at_first["tls.key"], data("fpga-pool-tls").await["tls.key"], "each service has its own");
    let authorities = certificates::authorities(&plane, NAMESPACE, "fpga-stream-ca").await.unwrap();
    assert_eq!(authorities.matches("BEGIN CERTIFICATE").count(), 1);
    let upgrade = async |settings: &[&str]| {
        let chart = ["upgrade", RELEASE, "manifests/chart", "--namespace", NAMESPACE, "--reuse-values"];
        let (well, text) = helm(Some(&plane), &[&chart[..], settings].concat()).await;
        assert!(well, "{text}");
    };
    upgrade(&["--set", "collector.labelNode=true,nodes.label=boards"]).await;
    assert_eq!(data("fpga-extender-stream-tls").await, at_first, "an upgrade keeps the certificate");
    assert_eq!(data("fpga-pool-ticket-key").await, tickets_at_first, "and the first arrivals of jobs");
    // So does what Argo CD does: kubectl applies what Helm renders without the cluster.
    let synced = render(&["--values", "manifests/values/pocl.yaml", "--set", settings]).await;
    let file = plane.run_dir().path().join("synced.yaml");
    std::fs::write(&file, synced.1).unwrap();
    let as_helm = ["apply", "--server-side", "--force-conflicts", "--field-manager=helm", "-f"];
    let apply = [&as_helm[..], &[file.to_str().unwrap()]].concat();
    kubectl(&plane, &apply).await.unwrap();
    assert_eq!(data("fpga-extender-stream-tls").await, at_first);
    // The pool is switched off and on again.
    upgrade(&["--set", "pool.enabled=false"]).await;
    assert!(certificates::secret(&plane, NAMESPACE, "fpga-pool-ticket-key").await.is_err());
    let managers = ["get", "daemonset/fpga-device-manager-pocl", "-n", NAMESPACE, "-o", "yaml"];
    assert!(!kubectl(&plane, &managers).await.unwrap().contains("--pool-slots"));
    upgrade(&["--set", "pool.enabled=true"]).await;
    assert!(kubectl(&plane, &managers).await.unwrap().contains("--pool-slots=1"));
    certificates::make(&plane, NAMESPACE).await.unwrap();
    assert!(data("fpga-pool-tls").await.contains_key("tls.key"));
    assert_eq!(data("fpga-extender-stream-tls").await, at_first);
    let (well, text) = helm(Some(&plane), &["rollback", RELEASE, "1", "--namespace", NAMESPACE]).await;
    assert!(well, "{text}");
    assert_eq!(data("fpga-extender-stream-tls").await, at_first);
    let template = ["get", "daemonset/fpga-collector", "-n", NAMESPACE, "-o", "yaml"];
    let collector = kubectl(&plane, &template).await.unwrap();
    assert!(
        !collector.contains("FPGA_LABEL_NODE") && collector.contains("prometheus.io/scrape"),
        "{collector}"
    );

    let (well, text) = helm(Some(&plane), &["uninstall", RELEASE, "--namespace", NAMESPACE, "--wait"]).await;
    assert!(well, "{text}");
    // Controllers remove what belongs to a Deployment or a DaemonSet.
    wait::until("the API to be as before", async || {
        let now = objects(&plane).await;
        let left: Vec<_> = now.symmetric_difference(&before).collect();
        anyhow::ensure!(left.is_empty(), "{left:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    plane.stop().await;
}

/// Runs the container of the hook's pod as a kubelet would, and reports its end.
async fn run_guard(plane: &ControlPlane) {
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let of_guard = ListParams::default().labels("app.kubernetes.io/name=fpga-uninstall-guard");
    let pod = wait::until("the pod of the hook", async || {
        let pods = pods.list(&of_guard).await?.items;
        Ok(pods
            .into_iter()
            .find(|pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Pending")))
    })
    .await
    .unwrap();
    let (name, spec) = (pod.name_any(), pod.spec.unwrap());
    let output = certificates::command(plane, NAMESPACE, &spec).await.unwrap().output().await.unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let held = "1 pods hold boards: default/holder on n1. Delete them first";
    assert_eq!(!output.status.success(), said.contains(held), "{said}");
    let phase = if output.status.success() { "Succeeded" } else { "Failed" };
    let status = Patch::Merge(json!({"status": {"phase": phase}}));
    pods.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
}

async fn nodes_lose_our_annotations_by_the_commands_of_the_page(plane: &ControlPlane) {
    let nodes: Api<Node> = Api::all(plane.client().clone());
    let written = ["node-state", "reuse", "library-version", "moved-off"]
        .map(|name| format!("fpga-scheduling.io/{name}"));
    let written: BTreeMap<String, &str> = written.into_iter().map(|name| (name, "x")).collect();
    let node = json!({"metadata": {"name": "left", "annotations": written}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node).unwrap()).await.unwrap();
    let page = documents::text(Path::new("book/operate/uninstall.md")).unwrap();
    let own = "helm_does_not_uninstall_while_a_pod_holds_a_board_and_its_errors_say_what_to_write";
    let blocks =
        documents::blocks(&page).into_iter().filter(|block| block.runner == Runner::Test(own.to_owned()));
    let commands: String = blocks.map(|block| block.text).collect();
    let kubectl = plane.kubectl();
    let shell = Shell::new(&[kubectl.parent().unwrap()]).unwrap();
    let shell = shell.env("KUBECONFIG", plane.kubeconfig(&Identity::Admin).unwrap());
    shell.run(&commands, patience()).await.unwrap();
    let left = nodes.get("left").await.unwrap().metadata.annotations.unwrap_or_default();
    assert!(!left.keys().any(|name| name.starts_with("fpga-scheduling.io/")), "{left:?}");
}

#[tokio::test]
async fn helm_does_not_uninstall_while_a_pod_holds_a_board_and_its_errors_say_what_to_write() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    install(&plane, &[]).await;
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), "default");
    let mut holder = pod(board());
    holder["metadata"]["name"] = json!("holder");
    holder["spec"]["nodeName"] = json!("n1");
    pods.create(&PostParams::default(), &serde_json::from_value(holder).unwrap()).await.unwrap();
    let uninstall = ["uninstall", RELEASE, "--namespace", NAMESPACE];
    let ((well, text), ()) = tokio::join!(helm(Some(&plane), &uninstall), run_guard(&plane));
    assert!(!well, "{text}");
    kubectl(&plane, &["get", "daemonset/fpga-node-plugin", "-n", NAMESPACE]).await.unwrap();

    let at_once = DeleteParams::default().grace_period(0);
    pods.delete("holder", &at_once).await.unwrap();
    let ((well, text), ()) = tokio::join!(helm(Some(&plane), &uninstall), run_guard(&plane));
    assert!(well, "{text}");
    let left = kubectl(&plane, &["get", "daemonset", "-n", NAMESPACE]).await.unwrap();
    assert!(left.contains("No resources found"), "{left}");

    // The definition of Bitstreams stays, and with it all of them; a release of the same name takes it over again.
    let left = kubectl(&plane, &["get", "bitstreams"]).await.unwrap();
    assert!(left.contains("No resources found"), "{left}");
    let again = ["install", RELEASE, "manifests/chart", "--namespace", NAMESPACE];
    let (well, text) = helm(Some(&plane), &again).await;
    assert!(well, "{text}");

    // Where the guard's pod can't run, Helm's error names the way round it.
    let (well, text) = helm(Some(&plane), &[&uninstall[..], &["--timeout=2s"]].concat()).await;
    assert!(!well && text.contains("--no-hooks"), "{text}");
    let (well, text) = helm(Some(&plane), &[&uninstall[..], &["--no-hooks"]].concat()).await;
    assert!(well, "{text}");
    // Another namespace takes over the definition that was kept, as the page says.
    let elsewhere = ["install", RELEASE, "manifests/chart", "--namespace", "elsewhere", "--create-namespace"];
    let (well, text) = helm(Some(&plane), &elsewhere).await;
    assert!(!well && text.contains("invalid ownership metadata"), "{text}");
    let (well, text) = helm(Some(&plane), &[&elsewhere[..], &["--take-ownership"]].concat()).await;
    assert!(well, "{text}");
    let (well, text) =
        helm(Some(&plane), &["uninstall", RELEASE, "--namespace", "elsewhere", "--no-hooks"]).await;
    assert!(well, "{text}");
    nodes_lose_our_annotations_by_the_commands_of_the_page(&plane).await;
    plane.stop().await;
}
