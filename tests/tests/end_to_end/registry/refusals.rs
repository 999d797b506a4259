//! Moves that something stands against: an autoscaler that owns the count, a quota, and a budget that only the eviction
//! itself can tell of.

use super::bed::{Bed, Board, NODES, node_of, other, outcome_is};
use fpga_tests::testbed::wait;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;

/// An autoscaler of a Deployment, with the Deployment's name. Without a metric that anybody serves it holds its bounds alone.
pub fn autoscaler(deployment: &str, least: u32, most: u32) -> HorizontalPodAutoscaler {
    serde_json::from_value(json!({
        "metadata": {"name": deployment},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment},
            "minReplicas": least, "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {
                "name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50},
            }}],
        },
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_leaves_the_number_of_replicas_to_its_autoscaler() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(bed.client().clone());
    autoscalers.create(&PostParams::default(), &autoscaler("sobel", 3, 4)).await.unwrap();
    bed.until_ready("sobel", 3).await;
    let before = bed.deployments().get("sobel").await.unwrap();
    assert_eq!(before.spec.as_ref().unwrap().replicas, Some(3), "the autoscaler owns the number");

    let _registry = bed.registry("registry", "evict", &[]).await;
    let pod = bed.lose_board_of("sobel").await;
    bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert!(!bed.is_there(&pod).await);
    let ready = bed.until_ready("sobel", 3).await;
    assert!(ready.iter().all(|ready| ready.uid() != pod.uid()));
    let after = bed.deployments().get("sobel").await.unwrap();
    assert_eq!(after.spec.unwrap().replicas, Some(3));
    assert_eq!(after.metadata.generation, before.metadata.generation, "nobody has written its specification");
    let owner = autoscalers.get("sobel").await.unwrap().status.unwrap();
    assert_eq!(owner.desired_replicas, 3);
    bed.stop().await;
}

/// Sets both bounds of an autoscaler, which holds them without any metric.
pub async fn autoscale(autoscalers: &Api<HorizontalPodAutoscaler>, name: &str, replicas: u32) {
    let bounds = json!({"spec": {"minReplicas": replicas, "maxReplicas": replicas}});
    autoscalers.patch(name, &PatchParams::default(), &Patch::Merge(&bounds)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_autoscaler_that_scales_in_and_out_during_moves_gets_its_count_and_no_pod_is_moved_twice() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(bed.client().clone());
    autoscalers.create(&PostParams::default(), &autoscaler("sobel", 4, 4)).await.unwrap();
    bed.until_ready("sobel", 4).await;
    // No node is marked for long: there are two.
    let _registry = bed.registry("registry", "evict", &["--moved-off-time", "2s"]).await;

    // A replacement that has no node keeps the move open, and the autoscaler wants two pods fewer meanwhile.
    let goes = bed.ready("sobel").await.unwrap().remove(0);
    bed.publish(other(&node_of(&goes)), Board::Lost).await;
    let first = bed.lose_board_of("sobel").await;
    bed.until_recorded("moves.json", "the pod to be evicted", outcome_is("evicted")).await;
    autoscale(&autoscalers, "sobel", 2).await;
    bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    let left = bed.until_ready("sobel", 2).await;
    assert!(!bed.is_there(&first).await);
    bed.until_looked_again("marker-1").await;
    assert_eq!(bed.moved().await.len(), 1, "what the autoscaler takes away is not moved");

    // The other way round: two more while the next move is open.
    let second = &left[0];
    bed.give_board(second).await;
    let is_second = |record: &serde_json::Value| {
        record["podUid"] == json!(second.uid()) && record["outcome"] == "evicted"
    };
    bed.until_recorded("moves.json", "the second pod to be evicted", is_second).await;
    autoscale(&autoscalers, "sobel", 4).await;
    wait::until("the autoscaler to want four", async || {
        let deployment = bed.deployments().get("sobel").await?;
        Ok((deployment.spec.unwrap_or_default().replicas == Some(4)).then_some(()))
    })
    .await
    .unwrap();
    let open = bed.moved().await;
    assert!(open.iter().any(|record| record["outcome"] == "evicted"), "three replicas are missing: {open:?}");
    for node in NODES {
        bed.publish(node, Board::There).await;
    }
    bed.until_ready("sobel", 4).await;
    wait::until("both moves to end", async || {
        let moves = bed.moved().await;
        Ok(moves.iter().all(outcome_is("ended")).then_some(()))
    })
    .await
    .unwrap();
    let moved: Vec<_> = bed.moved().await.iter().map(|record| record["podUid"].clone()).collect();
    assert_eq!(moved, [json!(first.uid()), json!(second.uid())]);
    assert_eq!(bed.deployments().get("sobel").await.unwrap().spec.unwrap().replicas, Some(4));
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replacement_that_a_quota_forbids_is_told_and_nothing_more_goes_until_it_is_there() {
    let bed = Bed::start().await;
    bed.create("sobel", 3).await;
    bed.kubectl(&["create", "quota", "pods", "--hard=pods=2"]).await;
    wait::until("the quota to be counted", async || {
        let used = bed.kubectl(&["get", "quota", "pods", "-o", "jsonpath={.status.used.pods}"]).await;
        Ok((used == "3").then_some(()))
    })
    .await
    .unwrap();
    let pods = bed.ready("sobel").await.unwrap();
    for pod in &pods {
        bed.give_board(pod).await;
    }
    let patient = bed.registry("registry", "evict", &[]).await;
    let node = node_of(&pods[0]);
    let others = pods.iter().filter(|pod| node_of(pod) != node).count();
    bed.publish(&node, Board::Lost).await;
    bed.until_recorded("moves.json", "the pod to be evicted", outcome_is("evicted")).await;
    bed.until_replica_failure("sobel").await;
    // The next registry finds the time to recover over, and what is missing in the status of the Deployment.
    patient.process().kill().await;
    let _registry = bed.registry("registry", "evict", &["--moves-recovery", "2s"]).await;
    let is_stuck = |record: &serde_json::Value| record["outcome"].get("stuck").is_some();
    let record = bed.until_recorded("moves.json", "the move to be stuck", is_stuck).await;
    let why = record["outcome"]["stuck"].as_str().unwrap();
    assert!(why.contains("exceeded quota: pods"), "{why}");
    let event = bed.until_told("MoveStuck").await;
    assert_eq!(event.type_.as_deref(), Some("Warning"));
    assert_eq!(bed.marks(&node).await, None, "nothing keeps the replacement off the node any more");
    // The other pods of the lost board stay, since a replica is missing.
    if others < 2 {
        bed.until_held("the Deployment is rolling out or being scaled").await;
    }
    assert_eq!((bed.moved().await.len(), bed.ready("sobel").await.unwrap().len()), (1, 2));
    assert!(bed.plugin(&["moves"]).contains("stuck: "));

    bed.publish(&node, Board::There).await;
    bed.kubectl(&["patch", "quota", "pods", "-p", r#"{"spec":{"hard":{"pods":"9"}}}"#]).await;
    bed.until_ready("sobel", 3).await;
    bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert_eq!(bed.moved().await.len(), 1, "it is not repeated");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_the_eviction_itself_is_refused_the_node_takes_the_workload_again() {
    let bed = Bed::start().await;
    // A pod that runs and is not Ready: of such the registry leaves the word to the Eviction API, whose budget is broken
    // already.
    let deaf = json!({"command": ["/bin/sh", "-c", "exec sleep 3600"], "ports": [{"containerPort": 9999}]});
    let deployment = Bed::deployment("sobel", 1, &deaf);
    bed.deployments().create(&PostParams::default(), &deployment).await.unwrap();
    bed.kubectl(&["create", "poddisruptionbudget", "all-stay", "--selector=app=sobel", "--min-available=1"])
        .await;
    let pod = wait::until("the pod to run and the budget to know it", async || {
        let budget = ["get", "poddisruptionbudget", "all-stay", "-o", "jsonpath={.status.expectedPods}"];
        let pods = bed.pods().list(&ListParams::default().labels("app=sobel")).await?;
        let runs =
            |pod: &&Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        let pod = pods.items.iter().find(runs).cloned();
        Ok(pod.zip((bed.kubectl(&budget).await == "1").then_some(())).map(|(pod, ())| pod))
    });
    let pod = pod.await.unwrap();
    let _registry = bed.registry("registry", "evict", &["--moves-cool-down", "1h"]).await;
    bed.give_board(&pod).await;
    bed.publish(&node_of(&pod), Board::Lost).await;
    let is_given_up = |record: &serde_json::Value| record["outcome"].get("givenUp").is_some();
    let record = bed.until_recorded("moves.json", "the move to be given up", is_given_up).await;
    let why = record["outcome"]["givenUp"].as_str().unwrap();
    assert!(why.contains("disruption budget"), "{why}");
    assert_eq!(bed.marks(&node_of(&pod)).await, None, "the mark is taken back");
    let event = bed.until_told("MoveGivenUp").await;
    assert!(event.note.unwrap().contains("it stays"));
    bed.until_looked_again("marker").await;
    assert!(bed.is_there(&pod).await);
    assert_eq!(bed.moved().await.len(), 1, "it is not tried again before the cool-down is over");
    bed.stop().await;
}
