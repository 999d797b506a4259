//! States of a real node in which pods wait, fail for good, or are replaced: no instance left, no plugin, no node.

use super::site::{Site, bind, node_spec, ready, sobel, sobel_image};
use fpga_test_kit::patience;
use fpga_tests::testbed::cluster::{Runtime, rbac};
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::real_node::{Boards, PluginOptions, RealNode};
use fpga_tests::testbed::restricted::{self, is_ready};
use fpga_tests::testbed::{extender, wait};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, PostParams};
use serde_json::{Value, json};
use std::time::Duration;

/// Waits until kube-scheduler says why it can't place the pod, with this text.
async fn pending_with(pods: &Api<Pod>, name: &str, text: &str) {
    wait::until(&format!("the pod {name} to wait because of: {text}"), async || {
        let conditions = pods.get(name).await?.status.and_then(|status| status.conditions);
        let scheduled = conditions.into_iter().flatten().find(|condition| condition.type_ == "PodScheduled");
        let message = scheduled.and_then(|condition| condition.message).unwrap_or_default();
        anyhow::ensure!(message.is_empty() || message.contains(text), "{message}");
        Ok((!message.is_empty()).then_some(()))
    })
    .await
    .unwrap();
}

/// Waits for a pod with this label `app` for which the condition holds, and returns its name.
async fn pod_of(pods: &Api<Pod>, app: &str, holds: impl Fn(&Pod) -> bool) -> String {
    let of_app = ListParams::default().labels(&format!("app={app}"));
    wait::until(&format!("a pod of {app}"), async || {
        let pod = pods.list(&of_app).await?.items.into_iter().find(&holds);
        Ok(pod.and_then(|pod| pod.metadata.name))
    })
    .await
    .unwrap()
}

/// The reason why the extender rejects n1 for a pod with this annotation; `None` if it does not.
async fn rejection(http: &HttpClient, plane: &ControlPlane) -> anyhow::Result<Option<String>> {
    let resources = json!({"limits": {"fpga-scheduling.io/accelerated": "1"}});
    let pod = json!({"metadata": {"name": "p", "namespace": "d", "uid": "u"},
        "spec": {"containers": [{"name": "c", "resources": resources}]}});
    let body = json!({"Pod": pod, "NodeNames": ["n1"]});
    let answer = http.post(&extender::url(plane, "/filter"), body.to_string()).await?.json()?;
    Ok(answer["FailedAndUnresolvableNodes"]["n1"].as_str().map(str::to_owned))
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn pods_wait_where_no_instance_is_left_or_no_plugin_and_one_that_is_bound_all_the_same_fails() {
    let mut plane = ControlPlane::start(&["n1"]).await.unwrap();
    rbac::grant(&plane).await.unwrap();
    let http = HttpClient::new(Duration::from_secs(10));
    let _extender = extender::start(&plane, &http, &[]).await.unwrap();
    let config = SchedulerConfig::shipped(&extender::url(&plane, "")).unwrap();
    plane.start_scheduler(&config.with("ignoredByScheduler", "false").unwrap()).await.unwrap();
    let image = sobel_image();
    let node = RealNode::start(node_spec(&image), &plane).await.unwrap();
    node.wait_ready().await.unwrap();
    let pods = restricted::namespace(plane.client(), "shop").await.unwrap();
    let create = async |name: &str, boards: u32| {
        super::create(&pods, &sobel(name, &image).boards("fpga-scheduling.io/accelerated", boards)).await;
    };
    let delete = async |name: &str| {
        pods.delete(name, &DeleteParams::default()).await.unwrap();
    };

    create("early", 1).await;
    pending_with(&pods, "early", "Insufficient fpga-scheduling.io/accelerated").await;
    let options = PluginOptions { instances_per_board: 2, ..PluginOptions::default() };
    let runtime = Runtime::from_env().unwrap();
    let mut boards = Boards::start_with(options, &node, &plane, runtime, &["dm0"]).await.unwrap();
    ready(&pods, "early", &node).await;

    // One instance is left, but the node has one board only.
    create("two-boards", 2).await;
    pending_with(&pods, "two-boards", "Insufficient fpga-scheduling.io/accelerated").await;
    delete("two-boards").await;

    create("second", 1).await;
    ready(&pods, "second", &node).await;
    wait::until("the extender to know that no instance is left", async || {
        let reason = rejection(&http, &plane).await?;
        Ok((reason.as_deref() == Some("FPGA device has as many containers as it may have")).then_some(()))
    })
    .await
    .unwrap();
    // As if another scheduler had bound a controller's pod at the same moment. The controller makes another one.
    let sets: Api<ReplicaSet> = Api::namespaced(plane.client().clone(), "shop");
    let set = sobel("third", &image).replica_set(1).unwrap();
    sets.create(&PostParams::default(), &set).await.unwrap();
    let third = pod_of(&pods, "third", |pod| pod.spec.is_some()).await;
    pending_with(&pods, &third, "Insufficient fpga-scheduling.io/accelerated").await;
    bind(&pods, &third, "n1").await;
    wait::until("the pod to fail", async || {
        let status = pods.get(&third).await?.status.unwrap_or_default();
        let failed = status.phase.as_deref() == Some("Failed");
        Ok((failed && status.reason.as_deref() == Some("UnexpectedAdmissionError")).then_some(()))
    })
    .await
    .unwrap();
    let is_another = |pod: &Pod| pod.metadata.name.as_ref() != Some(&third);
    let replacement = pod_of(&pods, "third", is_another).await;
    pending_with(&pods, &replacement, "Insufficient fpga-scheduling.io/accelerated").await;

    delete("second").await;
    ready(&pods, &replacement, &node).await;
    sets.delete("third", &DeleteParams::default()).await.unwrap();
    let freed = wait::until("the extender to know of the free instance", async || {
        Ok(rejection(&http, &plane).await?.is_none().then_some(()))
    });
    freed.await.unwrap();
    boards.kill_plugin().await;
    wait::until("the extender to reject the node without its plugin", async || {
        let reason = rejection(&http, &plane).await?;
        Ok((reason.as_deref() == Some("FPGA node plugin does not answer")).then_some(()))
    })
    .await
    .unwrap();
    boards.wait_offered(0).await.unwrap();
    create("late", 1).await;
    pending_with(&pods, "late", "Insufficient fpga-scheduling.io/accelerated").await;
    assert!(is_ready(&pods.get("early").await.unwrap()), "who has a board goes on without the plugin");
    boards.start_plugin(&node).unwrap();
    ready(&pods, "late", &node).await;
    boards.stop(&node).await;
    node.stop().await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn after_a_reboot_a_controllers_pod_has_a_board_again_and_no_token_from_before_is_left_over() {
    let site = Site::with_boards(&["dm0"]).await;
    let pods = site.namespace("shop").await;
    let sets: Api<ReplicaSet> = Api::namespaced(site.plane.client().clone(), "shop");
    let set = sobel("sobel", &site.image).replica_set(1).unwrap();
    sets.create(&PostParams::default(), &set).await.unwrap();
    let ready_pod = async || -> anyhow::Result<Option<Pod>> {
        Ok(pods.list(&ListParams::default()).await?.items.into_iter().find(is_ready))
    };
    let first = wait::until("the controller's pod to be ready", ready_pod).await.unwrap();
    let container = |pod: &Pod| -> Value {
        serde_json::to_value(
            &pod.status.as_ref().unwrap().container_statuses.as_ref().unwrap()[0].container_id,
        )
        .unwrap()
    };
    assert_eq!(site.boards.tokens("dm0", "shop").len(), 1);

    // What lies under /run is gone with the machine; what lies under /var/lib stays.
    let Site { plane, node, boards, image } = site;
    drop(boards);
    node.stop().await;
    let node = RealNode::start(node_spec(&image), &plane).await.unwrap();
    assert!(!node.machine().path("/run/fpga").exists());
    let boards = Boards::start(&node, &plane, Runtime::from_env().unwrap(), &["dm0"]).await.unwrap();
    let again = wait::until_within(
        "a pod of the controller to be ready after the reboot",
        2 * patience(),
        async || {
            node.check_running()?;
            Ok(ready_pod().await?.filter(|pod| container(pod) != container(&first)))
        },
    )
    .await
    .unwrap();
    let tokens = wait::until("the tokens to be those of the pod that runs", async || {
        let tokens = boards.tokens("dm0", "shop");
        Ok((tokens.len() == 1).then_some(tokens))
    })
    .await
    .unwrap();
    assert_eq!(tokens.len(), 1);
    assert!(is_ready(&pods.get(again.metadata.name.as_deref().unwrap()).await.unwrap()));
    Site { plane, node, boards, image }.close().await;
}
