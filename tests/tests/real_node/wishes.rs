//! What pods ask for on a real node: several boards, boards of a vendor or of a kind, boards that are not there; and a burst
//! of pods that asks for any board.

use super::site::{Site, SiteSpec, create, delete, ready, sobel};
use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::programs::built;
use fpga_tests::testbed::real_node::{Image, PluginOptions};
use fpga_tests::testbed::restricted::{self, RestrictedPod, is_ready};
use fpga_tests::testbed::{extender, wait};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Boards of the node with a burst. The last one is of another kind.
const BOARDS: [&str; 4] = ["dm0", "dm1", "dm2", "dm3"];
/// Pods of a burst.
const BURST: u32 = 40;

/// The message of the pod's first container that can't start.
fn waiting_message(pod: Pod) -> Option<String> {
    let containers = pod.status?.container_statuses?;
    containers.into_iter().next()?.state?.waiting?.message
}

/// The annotations of the pod, when the node plugin has written which boards it has.
async fn annotations_of(pods: &Api<Pod>, name: &str) -> BTreeMap<String, String> {
    wait::until("the pod's annotation", async || {
        let annotations = pods.get(name).await?.metadata.annotations.unwrap_or_default();
        Ok(annotations.contains_key("fpga-scheduling.io/boards").then_some(annotations))
    })
    .await
    .unwrap()
}

/// Number of containers that have each board, as the node plugin tells it.
async fn containers_on_boards(site: &Site, http: &HttpClient) -> Vec<u32> {
    let metrics = http.get(&site.boards.plugin_metrics_url()).await.unwrap().text();
    let of_board = |board: &str| {
        let sample = format!("fpga_node_plugin_board_containers{{board=\"{board}\"}} ");
        let value = metrics.lines().find_map(|line| line.strip_prefix(&sample));
        value.unwrap_or_else(|| panic!("no {sample} in {metrics}")).parse().unwrap()
    };
    BOARDS.into_iter().map(of_board).collect()
}

/// Pods that start at the same time, and use nothing yet, have as many on each board as on any other.
async fn a_burst_of_pods_spreads_over_all_boards(site: &Site, pods: &Api<Pod>, idle: &Image) {
    let http = HttpClient::new(patience());
    wait::until("the boards to be nobody's", async || {
        Ok((containers_on_boards(site, &http).await == [0; 4]).then_some(()))
    })
    .await
    .unwrap();
    let sets: Api<ReplicaSet> = Api::namespaced(site.plane.client().clone(), "shop");
    let burst = RestrictedPod::new("burst", idle.name()).on("n1");
    let burst = burst.boards("fpga-scheduling.io/accelerated", 1).replica_set(BURST).unwrap();
    let begin = Instant::now();
    sets.create(&PostParams::default(), &burst).await.unwrap();
    wait::until_within("the burst to be ready", 3 * patience(), async || {
        site.boards.check_running()?;
        let ready = pods
            .list(&ListParams::default().labels("app=burst"))
            .await?
            .items
            .iter()
            .filter(|pod| is_ready(pod))
            .count();
        anyhow::ensure!(ready == BURST as usize, "{ready} are ready");
        Ok(Some(()))
    })
    .await
    .unwrap();
    println!("{BURST} pods with a board were ready after {:?}", begin.elapsed());
    let containers = containers_on_boards(site, &http).await;
    let (least, most) = (containers.iter().min().unwrap(), containers.iter().max().unwrap());
    assert!(containers.iter().sum::<u32>() == BURST && most - least <= 1, "{containers:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_gets_as_many_boards_as_it_asks_for_with_the_reason_and_a_burst_of_pods_spreads_over_the_boards()
 {
    let idle = restricted::idle_image().unwrap();
    let spec = SiteSpec { boards: &BOARDS, images: vec![idle.clone()], ..SiteSpec::default() };
    let vendor = spec.runtime.vendor();
    let options = PluginOptions {
        vendor_resources: vec![vendor.to_owned()],
        board_names: ["a10gx", "a10gx", "a10gx", "s10"].map(str::to_owned).to_vec(),
        ..PluginOptions::default()
    };
    let site = Site::open(SiteSpec { options, ..spec }).await;
    let pods = site.namespace("shop").await;

    let of_vendor = format!("fpga-scheduling.io/{vendor}");
    for (name, resource, quantity) in
        [("two", "fpga-scheduling.io/accelerated", 2), ("of-vendor", of_vendor.as_str(), 1)]
    {
        create(&pods, &sobel(name, &site.image).boards(resource, quantity)).await;
        ready(&pods, name, &site.node).await;
        let annotations = annotations_of(&pods, name).await;
        let named: Vec<&str> = annotations["fpga-scheduling.io/boards"].split(',').collect();
        assert_eq!(named.len(), quantity as usize, "{named:?}");
        let reason = &annotations["fpga-scheduling.io/boards-reason"];
        assert!(named.iter().all(|board| reason.contains(board)) && reason.contains("% used"), "{reason}");
    }
    // The reason tells what the other boards lacked.
    let of_kind = sobel("of-kind", &site.image).label("fpga-scheduling.io/board", "s10");
    create(&pods, &of_kind).await;
    ready(&pods, "of-kind", &site.node).await;
    let annotations = annotations_of(&pods, "of-kind").await;
    assert_eq!(annotations["fpga-scheduling.io/boards"], "dm3");
    let reason = &annotations["fpga-scheduling.io/boards-reason"];
    let lacking = ["dm0", "dm1", "dm2"].map(|board| format!("; not {board}: FPGA board does not match"));
    assert!(reason.starts_with("main: dm3 (") && reason.ends_with(&lacking.concat()), "{reason}");

    // Each board's manager knows a token of each container that has the board.
    let tokens = BOARDS.map(|board| site.boards.tokens(board, "shop").len());
    assert_eq!(tokens.iter().sum::<usize>(), 4, "{tokens:?}");
    for name in ["two", "of-vendor", "of-kind"] {
        delete(&pods, name).await;
    }
    a_burst_of_pods_spreads_over_all_boards(&site, &pods, &idle).await;
    site.close().await;
}

/// `kubectl fpga explain` has the pod's board and the plugin's reason for it.
async fn explain_tells_the_board_and_the_plugins_reason(site: &Site, pods: &Api<Pod>, name: &str) {
    let reason = annotations_of(pods, name).await.remove("fpga-scheduling.io/boards-reason").unwrap();
    assert!(reason.starts_with("main: dm0 (") && reason.contains("% used, 0 containers)"), "{reason}");
    let output = tokio::process::Command::new(built("kubectl-fpga").unwrap())
        .args(["explain", &format!("shop/{name}"), "--extender", &extender::url(&site.plane, "")])
        .env_clear()
        .env("KUBECONFIG", site.plane.kubeconfig(&Identity::Admin).unwrap())
        .kill_on_drop(true)
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("is on      n1, boards dm0") && text.contains(&reason), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_board_that_the_node_can_never_have_is_told_at_the_pod_and_then_kube_scheduler_keeps_its_controller_off()
 {
    let mut site = Site::with_boards(&["dm0"]).await;
    let pods = site.namespace("shop").await;

    // No extender is asked here, so that the pods come to a node that has nothing for them.
    let lost = sobel("lost", &site.image).label("fpga-scheduling.io/fpga-vendor", "nobody");
    let sets: Api<ReplicaSet> = Api::namespaced(site.plane.client().clone(), "shop");
    let set = sets.create(&PostParams::default(), &lost.replica_set(1).unwrap()).await.unwrap();
    let message = wait::until("the pod's reason", async || {
        let lost = pods.list(&ListParams::default()).await?.items.into_iter().next();
        Ok(lost.and_then(waiting_message).filter(|message| message.contains("FPGA")))
    })
    .await
    .unwrap();
    assert!(message.contains("FPGA vendor does not match"), "{message}");

    let nodes: Api<Node> = Api::all(site.plane.client().clone());
    let uid = set.metadata.uid.unwrap();
    wait::until_within("the controller to be kept off the node", Duration::from_secs(180), async || {
        let annotations = nodes.get("n1").await?.metadata.annotations.unwrap_or_default();
        let state = annotations.get("fpga-scheduling.io/node-state").map(String::as_str).unwrap_or_default();
        let state: Value = serde_json::from_str(state)?;
        Ok((state["plugin"]["keptOff"] == json!([fpga_core::node_state::controller("shop", &uid)]))
            .then_some(()))
    })
    .await
    .unwrap();
    let pod_of_lost = pods.list(&ListParams::default()).await.unwrap().items.remove(0);
    assert!(!is_ready(&pod_of_lost), "it never runs without its board");

    // kube-scheduler asks the extender now, and the board becomes what the pods want: no pod of this controller is placed
    // there for a while, and others are at once.
    let http = HttpClient::new(Duration::from_secs(10));
    let _extender = extender::start(&site.plane, &http, &[]).await.unwrap();
    let config = SchedulerConfig::shipped(&extender::url(&site.plane, "")).unwrap();
    site.plane.start_scheduler(&config.with("ignoredByScheduler", "false").unwrap()).await.unwrap();
    let before = pod_of_lost.metadata.name.unwrap();
    delete(&pods, &before).await;
    site.boards.kill_manager(0).await;
    site.boards.managers[0].vendor = "nobody".to_owned();
    site.boards.start_manager(&site.node, 0).await.unwrap();
    let found = sobel("found", &site.image).label("fpga-scheduling.io/fpga-vendor", "nobody");
    sets.create(&PostParams::default(), &found.replica_set(1).unwrap()).await.unwrap();
    let of_found = ListParams::default().labels("app=found");
    let found = wait::until_within("the other controller's pod to be ready", 2 * patience(), async || {
        Ok(pods.list(&of_found).await?.items.into_iter().find(is_ready))
    });
    let found = found.await.unwrap().metadata.name.unwrap();
    explain_tells_the_board_and_the_plugins_reason(&site, &pods, &found).await;

    let of_lost = ListParams::default().labels("app=lost");
    wait::until("the controller's next pod to wait with the reason", async || {
        let next = pods.list(&of_lost).await?.items.into_iter();
        let conditions = next.filter_map(|pod| pod.status?.conditions).flatten();
        let messages: Vec<String> = conditions.filter_map(|condition| condition.message).collect();
        let reason = "FPGA node plugin could not serve this workload a moment ago";
        anyhow::ensure!(messages.iter().any(|message| message.contains(reason)), "{messages:?}");
        Ok(Some(()))
    })
    .await
    .unwrap();
    site.close().await;
}
