//! Moves for fewer cold starts, by what real boards' managers and collectors have measured.

use super::bed::{Bed, NODES, address_of, hold, node_of};
use crate::registry::{until_on, until_ready};
use crate::site::bind;
use anyhow::ensure;
use fpga_test_kit::patience;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::registry::records;
use fpga_tests::testbed::restricted::{self, is_ready};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::time::Instant;

/// Names of the Deployments, and of their bitstreams.
const NAMES: [&str; 2] = ["hold-0", "hold-1"];
/// Longest time of the load before the move: collectors of a stream annotate their nodes once a minute.
const LOAD: std::time::Duration = std::time::Duration::from_secs(240);
/// Rounds of calls after the move.
const ROUNDS: usize = 5;

/// Binds the pods of a Deployment, one to each node.
async fn bind_one_to_each(pods: &Api<Pod>, name: &str) {
    let of_app = ListParams::default().labels(&format!("app={name}"));
    let created = wait::until("a pod for each node", async || {
        let created = pods.list(&of_app).await?.items;
        Ok((created.len() == NODES.len()).then_some(created))
    });
    for (pod, (node, _)) in created.await.unwrap().iter().zip(NODES) {
        bind(pods, &pod.name_any(), node).await;
    }
}

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
    // A replica of each function on each node. The extender lets the second function take no board whose load only a closed
    // node has room for. So both nodes are closed, and the test binds the pods. A pod with one process is Ready when its
    // first kernel has run, so the board is idle when the second function asks for it.
    bed.open_only(&[]).await;
    let mut on_first: Vec<String> = Vec::new();
    for (number, name) in (0..).zip(NAMES) {
        bed.apply(&bed.publish(number).await).await;
        let deployment = bed.holder(name, name, 1).deployment(2).unwrap();
        deployments.create(&PostParams::default(), &deployment).await.unwrap();
        bind_one_to_each(&pods, name).await;
        let placed = until_on(&pods, name, &["n1", "n2"]).await;
        on_first.push(placed.iter().find(|pod| node_of(pod) == "n1").map(address_of).unwrap());
    }
    bed.open_only(&["n1", "n2"]).await;
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
    let ended = wait::until_within("the move to end", 2 * patience(), async || {
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
