//! fpga-registry in pods, as the chart installs it: which replica works, what its own token is refused, and what it
//! suggests where a board is lost.

use super::site::sobel_image;
use anyhow::{Context as _, ensure};
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::helm::NAMESPACE;
use fpga_tests::testbed::manifests;
use fpga_tests::testbed::real_cluster::RealCluster;
use fpga_tests::testbed::registry::records;
use fpga_tests::testbed::restricted::{self, RestrictedPod, is_ready};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Selector;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Instant;

/// Values of the chart for a registry that looks often, so that tests need not wait.
pub const VALUES: [&str; 4] = [
    "registry.enabled=true",
    "registry.moves.interval=1s",
    "registry.moves.boardGrace=2s",
    "boardKinds[0].drainSeconds=1",
];

/// Name of the Deployment, of its pods' label, and of the Lease.
const REGISTRY: &str = "fpga-registry";
/// Port of metrics in the pods.
const METRICS_PORT: u16 = 9473;
/// The label by which nodes get managers of a kind of boards.
const KIND: &str = "fpga-scheduling.io/fpga-vendor";

fn replicas() -> ListParams {
    ListParams::default().labels(&format!("app.kubernetes.io/name={REGISTRY}"))
}

/// The pod that holds the Lease, which must be the only one that says that it leads.
async fn leader(cluster: &RealCluster, before: Option<&str>) -> Pod {
    let leases: Api<Lease> = Api::namespaced(cluster.plane().client().clone(), NAMESPACE);
    wait::until("one registry to lead", async || {
        cluster.check_running()?;
        let holder = leases.get(REGISTRY).await?.spec.and_then(|spec| spec.holder_identity);
        let holder = holder.filter(|holder| !holder.is_empty()).context("nobody holds the Lease")?;
        ensure!(before != Some(holder.as_str()), "the pod that was deleted holds the Lease");
        let mut leading = Vec::new();
        for pod in cluster.pods().list(&replicas()).await? {
            let ip = pod.status.as_ref().and_then(|status| status.pod_ip.clone()).context("no address")?;
            let metrics = cluster.http().get(&format!("http://{ip}:{METRICS_PORT}/metrics")).await?;
            if metrics.metric("fpga_registry_leads") > 0.0 {
                leading.push(pod);
            }
        }
        let names: Vec<String> = leading.iter().map(Pod::name_any).collect();
        ensure!(names == [holder.as_str()], "{holder} holds the Lease, and {names:?} lead");
        Ok(leading.pop())
    })
    .await
    .unwrap()
}

/// Deletes the pod that works: the other one works then.
pub async fn of_two_replicas_one_works_and_the_other_when_it_is_deleted(cluster: &RealCluster) {
    assert_eq!(cluster.pods().list(&replicas()).await.unwrap().items.len(), 2);
    let first = leader(cluster, None).await.name_any();
    cluster.pods().delete(&first, &DeleteParams::default()).await.unwrap();
    let deleted = Instant::now();
    let second = leader(cluster, Some(&first)).await.name_any();
    println!("the leading registry deleted to {second} leading alone: {} ms", deleted.elapsed().as_millis());
    cluster.wait_rolled_out().await.unwrap();
}

/// The token that the kubelet has given to the pod.
fn token_of(cluster: &RealCluster, pod: &Pod) -> String {
    let name = pod.spec.as_ref().unwrap().node_name.as_deref().unwrap();
    let node = cluster.nodes().iter().find(|node| node.name() == name).unwrap();
    let uid = pod.metadata.uid.as_ref().unwrap();
    let volumes = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected");
    let mut volumes = std::fs::read_dir(node.machine().path(volumes)).unwrap().map(Result::unwrap);
    std::fs::read_to_string(volumes.next().unwrap().path().join("token")).unwrap()
}

/// Tries more with the token of the leader's pod than the registry must do; `pod` and `node` are others'.
pub async fn its_token_is_refused_whatever_a_registry_that_suggests_need_not_do(
    cluster: &RealCluster,
    namespace: &str,
    pod: &str,
    node: &str,
) {
    let plane = cluster.plane();
    let token = token_of(cluster, &leader(cluster, None).await);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: String| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let kubeconfig = manifests::kubeconfig(plane, &token).unwrap();
    let kubeconfig = file("kubeconfig", serde_json::to_string(&kubeconfig).unwrap());
    let kubectl = async |arguments: &[&str]| {
        let mut command = tokio::process::Command::new(plane.kubectl());
        let output = command.args(["--kubeconfig", &kubeconfig]).args(arguments).output().await.unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for must in [
        &["get", "nodes"][..],
        &["get", "pods,bitstreams", "--all-namespaces"],
        &["get", "lease", REGISTRY, "--namespace", NAMESPACE],
        &["get", "configmap", "fpga-registry-moves", "--namespace", NAMESPACE],
    ] {
        let (well, text) = kubectl(must).await;
        assert!(well, "{must:?}: {text}");
    }
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"namespace": namespace, "name": pod},
    });
    let eviction = file("eviction.json", eviction.to_string());
    let evict = format!("/api/v1/namespaces/{namespace}/pods/{pod}/eviction");
    let bitstream = json!({
        "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
        "metadata": {"namespace": namespace, "name": "mine"}, "spec": {"variants": []},
    });
    let bitstream = file("bitstream.json", bitstream.to_string());
    for (arguments, refused) in [
        (&["create", "--raw", &evict, "-f", &eviction][..], "cannot create resource \"pods/eviction\""),
        (&["delete", "pod", pod, "--namespace", namespace], "cannot delete resource \"pods\""),
        (&["annotate", "node", node, "fpga-scheduling.io/moved-off={}"], "cannot get resource \"nodes\""),
        (&["get", "secrets", "--namespace", NAMESPACE], "cannot list resource \"secrets\""),
        (&["create", "-f", &bitstream, "--validate=false"], "cannot create resource \"bitstreams\""),
        (&["create", "configmap", "mine", "--namespace", NAMESPACE], "cannot create resource \"configmaps\""),
        (
            &["create", "token", "fpga-node-plugin", "--namespace", NAMESPACE],
            "cannot create resource \"serviceaccounts/token\"",
        ),
        (
            &["get", "lease", "kube-fpga-scheduler", "--namespace", NAMESPACE],
            "cannot get resource \"leases\"",
        ),
        (&["get", "deployments", "--all-namespaces"], "cannot list resource \"deployments\""),
    ] {
        let (well, text) = kubectl(arguments).await;
        assert!(!well && text.contains(refused), "{arguments:?}: {text}");
    }
}

/// The chart's NetworkPolicy for ports that are scraped is for the registry's pods, too. Nothing on the test bed's nodes
/// enforces it.
pub async fn the_network_policy_is_for_its_pods(cluster: &RealCluster) {
    let policies: Api<NetworkPolicy> = Api::namespaced(cluster.plane().client().clone(), NAMESPACE);
    let policy = policies.get("scrape-only").await.unwrap().spec.unwrap();
    let selector: Selector = policy.pod_selector.unwrap().try_into().unwrap();
    let names = async |params: &ListParams| -> BTreeSet<String> {
        cluster.pods().list(params).await.unwrap().iter().map(Pod::name_any).collect()
    };
    let selected = names(&ListParams::default().labels_from(&selector)).await;
    assert!(names(&replicas()).await.is_subset(&selected), "{selected:?}");
    let from = policy.ingress.unwrap().remove(0).from.unwrap().remove(0);
    assert!(from.namespace_selector.is_some() && from.ip_block.is_none(), "{from:?}");
}

/// Waits for an event with this reason in the namespace.
pub async fn told(cluster: &RealCluster, namespace: &str, reason: &str) -> Event {
    let events: Api<Event> = Api::namespaced(cluster.plane().client().clone(), namespace);
    wait::until(&format!("the event {reason}"), async || {
        let mut events = events.list(&ListParams::default()).await?.items.into_iter();
        Ok(events.find(|event| event.reason.as_deref() == Some(reason)))
    })
    .await
    .unwrap()
}

/// Waits until so many pods of the Deployment `app` are Ready and stay, and returns them.
pub async fn until_ready(pods: &Api<Pod>, app: &str, count: usize) -> Vec<Pod> {
    let of_app = ListParams::default().labels(&format!("app={app}"));
    wait::until_within(&format!("{count} Ready pods of {app}"), 2 * patience(), async || {
        let mut all = pods.list(&of_app).await?.items;
        all.retain(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
        Ok((all.len() == count).then_some(all))
    })
    .await
    .unwrap()
}

/// As [`until_ready`], with one pod on each of these nodes; other nodes are closed.
pub async fn until_on(pods: &Api<Pod>, app: &str, nodes: &[&str]) -> Vec<Pod> {
    restricted::until_on(pods, nodes, async || until_ready(pods, app, nodes.len()).await).await.unwrap()
}

/// Takes the boards of a node away: the registry says so on the Deployment of a pod that had one, and the pod stays.
pub async fn a_lost_board_is_told_on_the_deployment_and_no_pod_goes(cluster: &RealCluster) {
    const ADVISED: &str = "advised";
    let client = cluster.plane().client();
    let pods = restricted::namespace(client, ADVISED).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), ADVISED);
    let function = RestrictedPod::function("sobel", Function::Sobel, sobel_image().name());
    deployments.create(&PostParams::default(), &function.deployment(2).unwrap()).await.unwrap();
    let before = until_ready(&pods, "sobel", 2).await;
    let uids = |pods: &[Pod]| -> BTreeSet<Option<String>> { pods.iter().map(Pod::uid).collect() };
    let node = before[0].spec.as_ref().unwrap().node_name.clone().unwrap();
    wait::until("the boards to say whose they are", async || {
        let boards = cluster.kubectl_fpga(&["boards", "-o", "wide"]).await?;
        let has_one = |pod: &Pod| boards.contains(&format!("{ADVISED}/{}", pod.name_any()));
        ensure!(before.iter().all(has_one), "{boards}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    let functions = cluster.kubectl_fpga(&["functions", "--namespace", ADVISED]).await.unwrap();
    assert!(functions.contains("ReplicaSet/sobel-") && functions.contains("2/2"), "{functions}");

    let nodes: Api<Node> = Api::all(client.clone());
    let label = async |vendor: &str| {
        let labels = json!({"metadata": {"labels": {KIND: vendor}}});
        nodes.patch(&node, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    };
    label("taken-away").await;
    let lost = Instant::now();
    let event = told(cluster, ADVISED, "MoveSuggested").await;
    println!("the node's managers told to end to the suggestion: {} ms", lost.elapsed().as_millis());
    let regarding = event.regarding.unwrap();
    assert_eq!((regarding.kind.as_deref(), regarding.name.as_deref()), (Some("Deployment"), Some("sobel")));
    let note = event.note.unwrap();
    assert!(note.contains(&node) && note.contains("has been lost"), "{note}");
    let moves = cluster.kubectl_fpga(&["moves", "--namespace", ADVISED]).await.unwrap();
    assert!(moves.contains("board_lost") && moves.contains("suggested"), "{moves}");
    label("pocl").await;
    cluster.wait_rolled_out().await.unwrap();
    let after = pods.list(&ListParams::default()).await.unwrap().items;
    assert_eq!(uids(&after), uids(&before), "no pod has gone");
    let records = records(client, "moves.json").await.unwrap();
    assert!(records.iter().all(|record| record["outcome"] == "suggested"), "{records:?}");
    let unmarked = nodes.get(&node).await.unwrap();
    assert!(!unmarked.annotations().contains_key("fpga-scheduling.io/moved-off"));
    deployments.delete("sobel", &DeleteParams::foreground()).await.unwrap();
}
