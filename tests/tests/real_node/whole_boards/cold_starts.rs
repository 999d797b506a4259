//! Moves for fewer cold starts, by what real boards' managers and collectors have measured.

use super::bed::{Bed, address_of, hold, node_of};
use crate::registry::{until_on, until_ready};
use anyhow::ensure;
use fpga_test_kit::patience;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::registry::records;
use fpga_tests::testbed::restricted::{self, is_ready};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::time::Instant;

/// Names of the Deployments, and of their bitstreams.
const NAMES: [&str; 2] = ["hold-0", "hold-1"];
/// Longest time of the load before the move: collectors of a stream annotate their nodes once a minute.
const LOAD: std::time::Duration = std::time::Duration::from_secs(240);
/// Rounds of calls after the move.
const ROUNDS: usize = 5;

/// Calls each function once, the one after the other, as long as there is no move, and returns the record of the move.
/// Each function has a Ready pod at all times.
async fn called_in_turn_until_a_move(bed: &Bed, pods: &Api<Pod>, addresses: &[String]) -> Value {
    let http = HttpClient::new(patience());
    let begin = Instant::now();
    loop {
        for (number, address) in (0..).zip(addresses) {
            match hold(&http, address).await {
                Ok(ran) => assert_eq!(ran, number, "a kernel of another bitstream ran"),
                // The pod may just have been moved.
                Err(error) => println!("a call of {} failed: {error:#}", NAMES[number as usize]),
            }
            serves_still(pods).await;
        }
        let moves = records(bed.cluster.plane().client(), "moves.json").await.unwrap();
        if let Some(record) = moves.into_iter().next() {
            return record;
        }
        assert!(begin.elapsed() < LOAD, "nothing is moved");
    }
}

/// Each function has a Ready pod.
async fn serves_still(pods: &Api<Pod>) {
    for name in NAMES {
        let all = pods.list(&ListParams::default().labels(&format!("app={name}"))).await.unwrap();
        let ready = all.iter().filter(|pod| is_ready(pod) && pod.metadata.deletion_timestamp.is_none());
        assert!(ready.count() > 0, "{name} has no Ready pod");
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn of_two_functions_that_take_a_board_from_each_other_one_is_moved_and_no_call_starts_cold() {
    let bed = Bed::start().await;
    let client = bed.cluster.plane().client();
    let pods = restricted::namespace(client, "shop").await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "shop");
    let http = HttpClient::new(patience());
    // A replica of each function on each node. A board's bitstream is taken only if it is on another board, too: before the
    // second function comes to the second node, the first one gets its bitstream back on the first.
    let mut on_first: Vec<String> = Vec::new();
    for (number, name) in (0..).zip(NAMES) {
        bed.apply(&bed.publish(number).await).await;
        bed.open_only(Some("n1")).await;
        let deployment = bed.holder(name, name).deployment(1).unwrap();
        deployments.create(&PostParams::default(), &deployment).await.unwrap();
        on_first.push(address_of(&until_on(&pods, name, &["n1"]).await[0]));
        hold(&http, &on_first[0]).await.unwrap();
        bed.open_only(Some("n2")).await;
        let two = Patch::Merge(json!({"spec": {"replicas": 2}}));
        deployments.patch(name, &PatchParams::default(), &two).await.unwrap();
        until_on(&pods, name, &["n1", "n2"]).await;
    }
    bed.open_only(None).await;
    let before = bed.board("n1").await.loads();

    let begin = Instant::now();
    let record = called_in_turn_until_a_move(&bed, &pods, &on_first).await;
    println!(
        "{} loads of the first board in {} s, and then: {}",
        bed.board("n1").await.loads() - before,
        begin.elapsed().as_secs(),
        record["reckoning"]
    );
    assert_eq!((&record["cause"], &record["node"]), (&json!("cold_starts"), &json!("n1")));
    let moved = record["workload"].as_str().unwrap();
    let stays = NAMES.into_iter().find(|name| *name != moved).unwrap();
    // The function that stays is called, so that the board keeps its bitstream.
    let own = usize::from(stays == NAMES[1]);
    let ended = fpga_tests::testbed::wait::until_within("the move to end", 2 * patience(), async || {
        hold(&http, &on_first[own]).await?;
        serves_still(&pods).await;
        let moves = records(client, "moves.json").await?;
        ensure!(moves.iter().all(|record| record["outcome"] == "ended"), "{moves:?}");
        Ok(Some(moves))
    });
    assert_eq!(ended.await.unwrap().len(), 1, "one move is enough");
    let after = until_ready(&pods, moved, 2).await;
    assert!(
        after.iter().all(|pod| node_of(pod) == "n2" && pod.uid().as_deref() != record["podUid"].as_str())
    );
    let replicas = deployments.get(moved).await.unwrap().spec.unwrap().replicas;
    assert_eq!(replicas, Some(2), "the number of replicas is as it was");

    // From now on each function has a board.
    let addresses = [on_first[own].clone(), address_of(&after[0])];
    let numbers = [own, 1 - own];
    let round = async || {
        for (address, number) in addresses.iter().zip(numbers) {
            assert_eq!(hold(&http, address).await.unwrap() as usize, number);
        }
    };
    round().await;
    let loads = async || [bed.board("n1").await.loads(), bed.board("n2").await.loads()];
    let warm = loads().await;
    for _ in 0..ROUNDS {
        round().await;
    }
    assert_eq!(loads().await, warm, "a call started cold");
    for node in ["n1", "n2"] {
        assert_eq!(bed.board(node).await.refused(), 0, "kernels would have run on a wrong image of {node}");
    }
    for name in NAMES {
        deployments.delete(name, &DeleteParams::foreground()).await.unwrap();
    }
    bed.cluster.stop().await;
}
