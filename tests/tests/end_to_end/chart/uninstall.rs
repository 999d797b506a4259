//! Upgrades, and what an uninstalled chart leaves behind: nothing, and not before all boards are free.

use super::{NAMESPACE, RELEASE, board, helm, install, pod};
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::{self, kubectl};
use fpga_tests::testbed::programs::built;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeSet;

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
async fn an_upgrade_keeps_the_certificate_and_an_uninstalled_chart_leaves_nothing_in_the_api() {
    let plane = ControlPlane::start(&[]).await.unwrap();
    kubectl(&plane, &["create", "namespace", NAMESPACE]).await.unwrap();
    until_namespaces_are_furnished(&plane).await;
    let before = objects(&plane).await;
    let settings = "monitoring.annotations=true,resourceQuota.create=true,uninstall.guard=false,\
                    customResources.keep=false,router.enabled=true,registry.enabled=true,registry.moves.mode=evict,\
                    pool.enabled=true";
    install(&plane, &["--set", settings]).await;
    assert!(objects(&plane).await.len() > before.len() + 20);

    let secrets: Api<Secret> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let key = async || secrets.get("fpga-stream-tls").await.unwrap().data.unwrap().remove("tls.key").unwrap();
    let at_first = key().await;
    let ticket_key =
        async || secrets.get_opt("fpga-pool-ticket-key").await.unwrap().map(|secret| secret.data);
    let tickets_at_first = ticket_key().await;
    assert!(tickets_at_first.is_some());
    let upgrade = async |settings: &[&str]| {
        let chart = ["upgrade", RELEASE, "manifests/chart", "--namespace", NAMESPACE, "--reuse-values"];
        let (well, text) = helm(Some(&plane), &[&chart[..], settings].concat()).await;
        assert!(well, "{text}");
    };
    upgrade(&["--set", "collector.labelNode=true,nodes.label=boards"]).await;
    assert_eq!(key().await, at_first, "an upgrade keeps the certificate");
    assert_eq!(ticket_key().await, tickets_at_first, "an upgrade keeps the first arrivals of jobs");
    // The pool is switched off and on again.
    upgrade(&["--set", "pool.enabled=false"]).await;
    assert_eq!(ticket_key().await, None);
    let managers = ["get", "daemonset/fpga-device-manager-pocl", "-n", NAMESPACE, "-o", "yaml"];
    assert!(!kubectl(&plane, &managers).await.unwrap().contains("--pool-slots"));
    upgrade(&["--set", "pool.enabled=true"]).await;
    assert!(kubectl(&plane, &managers).await.unwrap().contains("--pool-slots=1"));
    upgrade(&["--set", "certificates.renew=true"]).await;
    assert_ne!(key().await, at_first);
    let (well, text) = helm(Some(&plane), &["rollback", RELEASE, "1", "--namespace", NAMESPACE]).await;
    assert!(well, "{text}");
    assert_eq!(key().await, at_first);
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
    let account = spec.service_account_name.unwrap();
    let token = manifests::token_in(plane.client(), NAMESPACE, &account, Some(&name)).await.unwrap();
    let kubeconfig = plane.run_dir().path().join("guard");
    let text = serde_json::to_string(&manifests::kubeconfig(plane, &token).unwrap()).unwrap();
    std::fs::write(&kubeconfig, text).unwrap();
    let output = tokio::process::Command::new(built("fpga-scheduler-extender").unwrap())
        .args(spec.containers[0].args.iter().flatten())
        .env("FPGA_KUBECONFIG", kubeconfig)
        .output()
        .await
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    let held = "1 pods hold boards: default/holder on n1. Delete them first";
    assert_eq!(!output.status.success(), said.contains(held), "{said}");
    let phase = if output.status.success() { "Succeeded" } else { "Failed" };
    let status = Patch::Merge(json!({"status": {"phase": phase}}));
    pods.patch_status(&name, &PatchParams::default(), &status).await.unwrap();
}

#[tokio::test]
async fn helm_does_not_uninstall_while_a_pod_holds_a_board() {
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
    plane.stop().await;
}
