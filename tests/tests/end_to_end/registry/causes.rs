//! Why pods are moved, beside boards that are lost: a node that can't serve them, and cold starts.

use super::bed::{Bed, Board, NODES, node_of, outcome_is};
use fpga_board::reuse::published::ReuseLog;
use fpga_core::bitstream::BitstreamId;
use fpga_core::units::MonotonicTime;
use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
use serde_json::json;

/// What a collector publishes of bitstreams that were used once a second.
pub fn used_each_second(bitstreams: &[&str]) -> String {
    let mut log = ReuseLog::default();
    for second in 0..120 {
        for bitstream in bitstreams {
            let id = BitstreamId::Name((*bitstream).to_owned());
            log.used("dm0", &id, None, MonotonicTime(second * 1_000));
        }
    }
    log.text(MonotonicTime(120_000))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_functions_on_two_slots_one_is_moved_where_it_starts_warm() {
    let bed = Bed::start().await;
    let names = ["a", "b", "c"];
    for name in names {
        bed.create_on_each_node(name).await;
    }
    // All three are called on the first node, and none on the second.
    bed.publish_with(NODES[0], Board::There, &json!(null), Some(&used_each_second(&names))).await;
    bed.publish_with(NODES[1], Board::There, &json!(null), Some(&used_each_second(&[]))).await;
    let asks_too_much = bed.registry("registry", "evict", &["--moves-least-gain", "1000000"]).await;
    bed.until_looked_again("marker-1").await;
    asks_too_much.process().kill().await;
    assert_eq!(bed.moved().await.len(), 0, "no move saves as much");

    bed.kubectl(&["cordon", NODES[1]]).await;
    let _registry = bed.registry("registry", "evict", &["--moves-least-gain", "600"]).await;
    bed.until_looked_again("marker-2").await;
    assert_eq!(bed.moved().await.len(), 0, "a cordoned node is no place to go");
    bed.kubectl(&["uncordon", NODES[1]]).await;
    let record = bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert_eq!((&record["cause"], &record["node"]), (&json!("cold_starts"), &json!(NODES[0])));
    let name = record["workload"].as_str().unwrap();
    for pod in bed.until_ready(name, 2).await {
        assert_eq!(node_of(&pod), NODES[1], "{}", pod.name_any());
    }
    let reckoning = record["reckoning"].as_str().unwrap();
    for words in ["cold starts per hour on its board dm0", "on dm0 of n2"] {
        assert!(reckoning.contains(words), "{reckoning}");
    }
    assert!(bed.plugin(&["moves"]).contains(reckoning));
    bed.until_looked_again("marker-3").await;
    assert_eq!(bed.moved().await.len(), 1, "what it brings is seen before the next");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_its_node_can_not_serve_goes_to_a_node_that_can() {
    let bed = Bed::start().await;
    // Ready only once the file is there: until then the pod is as one whose container could not start.
    let [file, refused] = ["served", "refused"].map(|name| bed.plane.run_dir().path().join(name));
    let script = format!(
        "if [ -e {} ]; then exec python3 -m http.server 9999 --bind $POD_IP; else touch {}; exec sleep 3600; fi",
        file.display(),
        refused.display()
    );
    let container = json!({"command": ["/bin/sh", "-c", script], "ports": [{"containerPort": 9999}]});
    let deployment = Bed::deployment("sobel", 1, &container);
    bed.deployments().create(&PostParams::default(), &deployment).await.unwrap();
    let pod = fpga_tests::testbed::wait::until("the pod to run", async || {
        let pods = bed.pods().list(&ListParams::default().labels("app=sobel")).await?;
        let runs = |pod: &&k8s_openapi::api::core::v1::Pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        Ok(pods.items.iter().find(runs).filter(|_| refused.exists()).cloned())
    });
    let pod = pod.await.unwrap();
    std::fs::write(&file, "").unwrap();
    let _registry = bed.registry("registry", "evict", &[]).await;
    let controller = pod.metadata.owner_references.as_ref().unwrap()[0].uid.clone();
    let plugin = json!({"boards": {"dm0": [0, 16]}, "keptOff": [fpga_core::node_state::controller("default", &controller)]});
    bed.publish_with(&node_of(&pod), Board::There, &plugin, None).await;
    let record = bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert_eq!((&record["podUid"], &record["cause"]), (&json!(pod.uid()), &json!("not_prepared")));
    let reckoning = record["reckoning"].as_str().unwrap();
    assert!(reckoning.contains("the node could not give it a board; it serves nobody (0 of 1 Ready)"));
    let served = bed.until_ready("sobel", 1).await;
    assert_ne!(node_of(&served[0]), node_of(&pod));
    assert_eq!(bed.moved().await.len(), 1);
    bed.stop().await;
}
