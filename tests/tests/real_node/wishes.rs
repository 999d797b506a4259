//! What pods ask for on a real node: several boards, boards of a vendor, boards that are not there.

use super::LONG;
use super::site::{Site, SiteSpec, create, delete, ready, sobel};
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::real_node::PluginOptions;
use fpga_tests::testbed::restricted::is_ready;
use fpga_tests::testbed::{extender, wait};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

/// The message of the pod's first container that can't start.
fn waiting_message(pod: Pod) -> Option<String> {
    let containers = pod.status?.container_statuses?;
    containers.into_iter().next()?.state?.waiting?.message
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_gets_as_many_boards_as_it_asks_for_and_its_annotation_names_them() {
    let spec = SiteSpec { boards: &["dm0", "dm1"], ..SiteSpec::default() };
    let vendor = spec.runtime.vendor();
    let options = PluginOptions { vendor_resources: vec![vendor.to_owned()], ..PluginOptions::default() };
    let site = Site::open(SiteSpec { options, ..spec }).await;
    let pods = site.namespace("shop").await;

    let of_vendor = format!("fpga-scheduling.io/{vendor}");
    for (name, resource, quantity) in
        [("two", "fpga-scheduling.io/accelerated", 2), ("of-vendor", of_vendor.as_str(), 1)]
    {
        create(&pods, &sobel(name, &site.image).boards(resource, quantity)).await;
        ready(&pods, name, &site.node).await;
        let annotations = wait::until("the pod's annotation", LONG, async || {
            let annotations = pods.get(name).await?.metadata.annotations.unwrap_or_default();
            Ok(annotations.contains_key("fpga-scheduling.io/boards").then_some(annotations))
        })
        .await
        .unwrap();
        let named: Vec<&str> = annotations["fpga-scheduling.io/boards"].split(',').collect();
        assert_eq!(named.len(), quantity as usize, "{named:?}");
        let reason = &annotations["fpga-scheduling.io/boards-reason"];
        assert!(named.iter().all(|board| reason.contains(board)) && reason.contains("% used"), "{reason}");
    }
    // Two containers on one board, one on the other; each board's manager knows a token of each.
    let tokens = ["dm0", "dm1"].map(|board| site.boards.tokens(board, "shop").len());
    assert_eq!(tokens.iter().sum::<usize>(), 3, "{tokens:?}");
    site.close().await;
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
    let message = wait::until("the pod's reason", LONG, async || {
        let lost = pods.list(&ListParams::default()).await?.items.into_iter().next();
        Ok(lost.and_then(waiting_message).filter(|message| message.contains("FPGA")))
    })
    .await
    .unwrap();
    assert!(message.contains("FPGA vendor does not match"), "{message}");

    let nodes: Api<Node> = Api::all(site.plane.client().clone());
    let uid = set.metadata.uid.unwrap();
    wait::until("the controller to be kept off the node", Duration::from_secs(180), async || {
        let annotations = nodes.get("n1").await?.metadata.annotations.unwrap_or_default();
        let state = annotations.get("fpga-scheduling.io/node-state").map(String::as_str).unwrap_or_default();
        let state: Value = serde_json::from_str(state)?;
        Ok((state["plugin"]["keptOff"] == json!([format!("shop/{uid}")])).then_some(()))
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
    wait::until("the other controller's pod to be ready", 2 * LONG, async || {
        Ok(pods.list(&of_found).await?.items.into_iter().find(is_ready))
    })
    .await
    .unwrap();

    let of_lost = ListParams::default().labels("app=lost");
    wait::until("the controller's next pod to wait with the reason", LONG, async || {
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
