//! The chart's router in pods of real nodes: requests go by its Envoys and pickers, which know the boards by streams of the
//! collectors, while pods of the router end in every way, and one of the function is evicted.

use super::load::Load;
use super::registry::{until_on, until_ready};
use super::site::sobel_image;
use anyhow::Context as _;
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::helm::NAMESPACE;
use fpga_tests::testbed::http_client::{Answer, HttpClient};
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{Image, RunMount, envoy_image};
use fpga_tests::testbed::restricted::{self, RestrictedPod};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Instant;

/// The function, and its namespace.
const FUNCTION: &str = "sobel";
const SHOP: &str = "shop";
const NODES: [(&str, RunMount); 2] = [("n1", RunMount::Executable), ("n2", RunMount::NoExec)];
const VALUES: [&str; 2] = ["router.enabled=true", "router.drainSeconds=4"];
/// Port of a picker's metrics, in the router's pods.
const PICKER_METRICS: u16 = 9471;
/// Clients at a time, each over a connection that it keeps.
const CLIENTS: usize = 4;

/// Makes a Deployment of the function with a replica on each node.
async fn deploy(cluster: &RealCluster, pods: &Api<Pod>, image: &Image) {
    let client = cluster.plane().client();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), SHOP);
    let nodes: Api<Node> = Api::all(client.clone());
    let close = async |node: &str, is_closed: bool| {
        let patch = Patch::Merge(json!({"spec": {"unschedulable": is_closed}}));
        nodes.patch(node, &PatchParams::default(), &patch).await.unwrap();
    };
    let [(one, _), (two, _)] = NODES;
    close(two, true).await;
    let function = RestrictedPod::function(FUNCTION, Function::Sobel, image.name());
    let function = function.annotation("fpga-scheduling.io/bitstreams", FUNCTION);
    deployments.create(&PostParams::default(), &function.deployment(1).unwrap()).await.unwrap();
    until_on(pods, FUNCTION, &[one]).await;
    close(two, false).await;
    close(one, true).await;
    let replicas = Patch::Merge(json!({"spec": {"replicas": 2}}));
    deployments.patch(FUNCTION, &PatchParams::default(), &replicas).await.unwrap();
    until_on(pods, FUNCTION, &[one, two]).await;
    close(one, false).await;
}

/// Evicts a replica of the function under load, as the registry moves one: its replacement serves, and no request is cut.
async fn an_evicted_replica_costs_no_request(pods: &Api<Pod>, load: &Load) {
    let evicted = until_ready(pods, FUNCTION, 2).await.remove(0).name_any();
    pods.evict(&evicted, &EvictParams::default()).await.unwrap();
    wait::until("the evicted replica to be gone", async || {
        Ok(pods.get_opt(&evicted).await?.is_none().then_some(()))
    })
    .await
    .unwrap();
    until_ready(pods, FUNCTION, 2).await;
    load.goes_on().await;
    assert_eq!(load.cut(), 0, "requests failed when a replica of the function was evicted");
}

/// The metrics of the picker in each pod of the router.
async fn pickers(cluster: &RealCluster) -> anyhow::Result<Vec<Answer>> {
    let pods = cluster.addresses("fpga-router").await?;
    let asked = pods.iter().map(|(_, ip)| async move {
        let answer = cluster.http().get(&format!("http://{ip}:{PICKER_METRICS}/metrics")).await;
        answer.context("a picker's metrics")
    });
    futures::future::try_join_all(asked).await
}

/// Waits until there are two pickers, and each knows both replicas and their boards by streams alone.
async fn pickers_know_the_boards_by_streams(cluster: &RealCluster) {
    let lines = [
        "fpga_picker_replicas 2",
        "fpga_picker_boards{board=\"fresh\"} 2",
        "fpga_picker_nodes{source=\"stream\"} 2",
        "fpga_picker_nodes{source=\"annotation\"} 0",
    ];
    wait::until_within("both pickers to know the boards by streams", 2 * patience(), async || {
        cluster.check_running()?;
        let texts: Vec<String> = pickers(cluster).await?.iter().map(Answer::text).collect();
        let knows = |text: &String| lines.iter().all(|line| text.lines().any(|shown| shown == *line));
        anyhow::ensure!(texts.len() == 2 && texts.iter().all(knows), "{texts:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
}

/// How many requests the pickers have given an endpoint, by what the choices are based on.
async fn choices(cluster: &RealCluster) -> BTreeMap<String, f64> {
    let mut choices = BTreeMap::new();
    for picker in pickers(cluster).await.unwrap() {
        for line in picker.text().lines() {
            let Some(rest) = line.strip_prefix("fpga_picker_choices_total{basis=\"") else { continue };
            let (basis, count) = rest.split_once("\"} ").unwrap();
            *choices.entry(basis.to_owned()).or_default() += count.parse::<f64>().unwrap();
        }
    }
    choices
}

/// Whether the process with this folder in /proc runs on a node of this program.
pub fn is_on_a_node(process: &Path) -> bool {
    let cgroup = format!("/fpga-test-node-{}-", std::process::id());
    std::fs::read_to_string(process.join("cgroup")).is_ok_and(|cgroups| cgroups.contains(&cgroup))
}

/// The processes of this program's nodes that run `program`.
pub fn processes(program: &str) -> BTreeSet<i32> {
    let is_one = |process: &Path| {
        let command = std::fs::read_to_string(process.join("cmdline")).unwrap_or_default();
        let path = command.split('\0').next().unwrap_or_default();
        path.rsplit('/').next() == Some(program) && is_on_a_node(process)
    };
    let processes = std::fs::read_dir("/proc").unwrap().flatten().filter(|process| is_one(&process.path()));
    processes.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
}

/// Kills one of the two processes that run `program`, and waits until another one runs in its place.
async fn kill_one(program: &str) {
    let before = processes(program);
    assert_eq!(before.len(), 2, "{program}: {before:?}");
    kill(Pid::from_raw(*before.first().unwrap()), Signal::SIGKILL).unwrap();
    wait::until(&format!("{program} to be started again"), async || {
        let now = processes(program);
        Ok((now.len() == 2 && now != before).then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn the_router_picks_by_streams_and_answers_every_request_while_its_pods_and_the_functions_end_and_its_pickers_are_killed()
 {
    let sobel = sobel_image();
    let cluster = RealCluster::start(RealClusterSpec {
        nodes: NODES.map(|(name, run_mount)| (name.to_owned(), run_mount)).to_vec(),
        images: vec![sobel.clone(), envoy_image().unwrap()],
        values: VALUES.map(str::to_owned).to_vec(),
    })
    .await
    .unwrap();
    let client = cluster.plane().client();
    let pods = restricted::namespace(client, SHOP).await.unwrap();
    deploy(&cluster, &pods, &sobel).await;
    let services: Api<Service> = Api::namespaced(client.clone(), SHOP);
    services.create(&PostParams::default(), &restricted::function_service(FUNCTION).unwrap()).await.unwrap();
    pickers_know_the_boards_by_streams(&cluster).await;

    let router = cluster.router().await.unwrap();
    let url = router.url(SHOP, FUNCTION);
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::keeping_connections(patience());
    // A collector's stream tells that the board of the replica that served has the bitstream.
    wait::until("a request to be sent to a slot that has the bitstream", async || {
        case.invoke_at(&http, &url).await?;
        Ok(choices(&cluster).await.contains_key("resident").then_some(()))
    })
    .await
    .unwrap();
    // An Envoy that misses one answer of a picker sends without one for a moment.
    let choices = wait::until("the pickers to choose for each of ten requests", async || {
        let before: f64 = choices(&cluster).await.values().sum();
        for _ in 0..10 {
            case.invoke_at(&http, &url).await.unwrap();
        }
        let choices = choices(&cluster).await;
        let count = choices.values().sum::<f64>() - before;
        anyhow::ensure!((count - 10.0).abs() < 0.5, "{count} choices: {choices:?}");
        Ok(Some(choices))
    })
    .await
    .unwrap();
    assert!(!choices.contains_key("in_flight"), "a choice was made without a fresh state: {choices:?}");

    // Pods that end in order, and pickers that end in any way, cost no request.
    let load = Load::start(&url, &case, CLIENTS, || HttpClient::keeping_connections(patience()));
    load.goes_on().await;
    let of_router = cluster.pods();
    let routers = ListParams::default().labels("app.kubernetes.io/name=fpga-router");
    let first = of_router.list(&routers).await.unwrap().items.remove(0).metadata.name.unwrap();
    of_router.delete(&first, &DeleteParams::default()).await.unwrap();
    wait::until("the router's pod to be gone", async || {
        Ok(of_router.get_opt(&first).await?.is_none().then_some(()))
    })
    .await
    .unwrap();
    cluster.wait_rolled_out().await.unwrap();
    pickers_know_the_boards_by_streams(&cluster).await;
    load.goes_on().await;
    assert_eq!(load.cut(), 0, "requests failed when a pod of the router was deleted");

    kill_one("fpga-endpoint-picker").await;
    pickers_know_the_boards_by_streams(&cluster).await;
    load.goes_on().await;
    assert_eq!(load.cut(), 0, "requests failed when a picker was killed");

    let begin = Instant::now();
    cluster.upgrade(&[&VALUES[..], &["router.maxWaiting=999"]].concat()).await.unwrap();
    println!("the upgrade of the router took {:?}", begin.elapsed());
    pickers_know_the_boards_by_streams(&cluster).await;
    load.goes_on().await;
    assert_eq!(load.cut(), 0, "requests failed when Helm rolled the router in {NAMESPACE}");

    an_evicted_replica_costs_no_request(&pods, &load).await;

    // A killed Envoy cuts its requests; who sends one again is answered.
    kill_one("envoy").await;
    load.goes_on().await;
    println!(
        "{} requests were cut when an Envoy was killed, and answered when they were sent again",
        load.cut()
    );
    println!("{} requests were answered", load.end().await);
    cluster.stop().await;
}
