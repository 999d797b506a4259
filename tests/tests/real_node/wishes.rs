//! What pods ask for on a real node: several boards, boards of a vendor, boards that are not there.

use super::{
    LONG, is_ready, ready, restricted_namespace, restricted_pod, sobel_container, sobel_image, start_plane,
};
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::real_node::{Boards, PluginOptions, RealNode, RealNodeSpec};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

/// The fields of a container that runs the function and asks for this quantity of a resource.
fn container_asking(resource: &str, quantity: u32) -> Value {
    let mut container = sobel_container();
    container["resources"] = json!({"limits": {resource: quantity}});
    container
}

/// The message of the pod's first container that can't start.
fn waiting_message(pod: Pod) -> Option<String> {
    let containers = pod.status?.container_statuses?;
    containers.into_iter().next()?.state?.waiting?.message
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_gets_as_many_boards_as_it_asks_for_and_its_annotation_names_them() {
    let plane = start_plane(&["n1"]).await;
    let image = sobel_image();
    let spec = RealNodeSpec { images: vec![image.clone()], ..RealNodeSpec::new("n1", 0) };
    let node = RealNode::start(spec, &plane).await.unwrap();
    node.wait_ready().await.unwrap();
    let runtime = Runtime::from_env().unwrap();
    let options =
        PluginOptions { vendor_resources: vec![runtime.vendor().to_owned()], ..PluginOptions::default() };
    let boards = Boards::start_with(options, &node, &plane, runtime, &["dm0", "dm1"]).await.unwrap();
    let pods = restricted_namespace(&plane, "shop").await;

    let of_vendor = format!("fpga-scheduling.io/{}", runtime.vendor());
    for (name, resource, quantity) in
        [("two", "fpga-scheduling.io/accelerated", 2), ("of-vendor", of_vendor.as_str(), 1)]
    {
        let pod = restricted_pod(name, &image, "n1", &container_asking(resource, quantity));
        pods.create(&PostParams::default(), &pod).await.unwrap();
        ready(&pods, name, &node).await;
        let named = wait::until("the pod's annotation", LONG, async || {
            let annotations = pods.get(name).await?.metadata.annotations.unwrap_or_default();
            Ok(annotations.get("fpga-scheduling.io/boards").cloned())
        })
        .await
        .unwrap();
        assert_eq!(named.split(',').count(), quantity as usize, "{named}");
    }
    // Two containers on one board, one on the other; each board's manager knows a token of each.
    let tokens = [boards.tokens("dm0", "shop").len(), boards.tokens("dm1", "shop").len()];
    assert_eq!(tokens.iter().sum::<usize>(), 3, "{tokens:?}");
    boards.stop(&node).await;
    node.stop().await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_board_that_the_node_can_never_have_is_told_at_the_pod_and_then_keeps_its_controller_off_the_node()
{
    let plane = start_plane(&["n1"]).await;
    let image = sobel_image();
    let spec = RealNodeSpec { images: vec![image.clone()], ..RealNodeSpec::new("n1", 0) };
    let node = RealNode::start(spec, &plane).await.unwrap();
    node.wait_ready().await.unwrap();
    let boards = Boards::start(&node, &plane, Runtime::from_env().unwrap(), &["dm0"]).await.unwrap();
    let pods = restricted_namespace(&plane, "shop").await;

    // No extender is asked here, so that the pods come to a node that has nothing for them.
    let mut template = serde_json::to_value(restricted_pod("", &image, "n1", &sobel_container())).unwrap();
    template["metadata"] = json!({"labels": {"app": "lost", "fpga-scheduling.io/fpga-vendor": "nobody"}});
    let set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "lost"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"app": "lost"}}, "template": template},
    }))
    .unwrap();
    let sets: Api<ReplicaSet> = Api::namespaced(plane.client().clone(), "shop");
    let set = sets.create(&PostParams::default(), &set).await.unwrap();
    let message = wait::until("the pod's reason", LONG, async || {
        let lost = pods.list(&ListParams::default()).await?.items.into_iter().next();
        Ok(lost.and_then(waiting_message).filter(|message| message.contains("FPGA")))
    })
    .await
    .unwrap();
    assert!(message.contains("FPGA vendor does not match"), "{message}");

    let nodes: Api<Node> = Api::all(plane.client().clone());
    let uid = set.metadata.uid.unwrap();
    wait::until("the controller to be kept off the node", Duration::from_secs(180), async || {
        let annotations = nodes.get("n1").await?.metadata.annotations.unwrap_or_default();
        let state = annotations.get("fpga-scheduling.io/node-state").map(String::as_str).unwrap_or_default();
        let state: Value = serde_json::from_str(state)?;
        Ok((state["plugin"]["keptOff"] == json!([format!("shop/{uid}")])).then_some(()))
    })
    .await
    .unwrap();
    let lost = pods.list(&ListParams::default()).await.unwrap().items;
    assert!(!lost.iter().any(is_ready), "it never runs without its board");
    boards.stop(&node).await;
    node.stop().await;
    plane.stop().await;
}
