//! Who leads when the lead is lost in the middle of a move: a leader that was stopped for longer than its lease, and an API
//! server that was away. The move ends, no pod is moved twice, and one replica leads.

use super::bed::{Bed, Board, NODES, node_of, outcome_is};
use anyhow::{Context as _, Result};
use fpga_test_kit::patience;
use fpga_tests::testbed::extender;
use fpga_tests::testbed::manifests::NAMESPACE;
use fpga_tests::testbed::registry::Registry;
use fpga_tests::testbed::wait;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Deployments with a pod on each node.
const NAMES: [&str; 2] = ["a", "b"];
const HOUR_SPENT: &str = "as many moves as may be in an hour were decided";

/// A cluster whose pods on the first node have its board.
async fn bed_with_boards() -> Bed {
    let bed = Bed::start().await;
    for name in NAMES {
        bed.create_on_each_node(name).await;
        for pod in bed.ready(name).await.unwrap() {
            if node_of(&pod) == NODES[0] {
                bed.give_board(&pod).await;
            }
        }
    }
    bed
}

/// Waits for the first record of a move, whose steps the registry does meanwhile.
async fn until_begun(bed: &Bed) -> Value {
    let maps: Api<ConfigMap> = Api::namespaced(bed.client().clone(), NAMESPACE);
    let config = watcher::Config::default().fields("metadata.name=fpga-registry-moves");
    let mut maps = std::pin::pin!(watcher(maps, config).default_backoff().applied_objects());
    let first = async {
        while let Some(map) = maps.next().await {
            let data = map.unwrap().data.unwrap_or_default();
            let moves = data.get("moves.json").map_or("[]", String::as_str);
            let moves: Vec<Value> = serde_json::from_str(moves).unwrap();
            if let Some(first) = moves.into_iter().next() {
                return first;
            }
        }
        panic!("the watch has ended")
    };
    tokio::time::timeout(patience(), first).await.expect("no move was begun")
}

/// The number of registries that lead by their own account.
async fn leaders(bed: &Bed, registries: &[&Registry]) -> Result<usize> {
    let mut leaders = 0;
    for registry in registries {
        leaders += usize::from(registry.metric(&bed.http, "fpga_registry_leads").await? > 0.0);
    }
    Ok(leaders)
}

async fn until_leads(bed: &Bed, registry: &Registry) {
    wait::until("the registry to lead", async || Ok((leaders(bed, &[registry]).await? == 1).then_some(())))
        .await
        .unwrap();
}

/// The UIDs of the Deployments' pods.
async fn pods(bed: &Bed) -> BTreeSet<String> {
    let pods = bed.pods().list(&ListParams::default().labels("app")).await.unwrap();
    pods.items.iter().filter_map(|pod| pod.uid()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_stopped_in_a_move_for_longer_than_its_lease_does_nothing_more_when_it_goes_on() {
    let bed = bed_with_boards().await;
    let args = ["--moves-per-hour", "1", "--moves-per-interval", "2"];
    let first = bed.registry("registry-1", "evict", &args).await;
    until_leads(&bed, &first).await;
    let second = bed.registry("registry-2", "evict", &args).await;
    let stopped = async {
        let record = until_begun(&bed).await;
        first.process().signal(Signal::SIGSTOP);
        record
    };
    let (record, ()) = tokio::join!(stopped, bed.publish(NODES[0], Board::Lost));
    println!("The leader was stopped when a move was {}", record["outcome"]);

    until_leads(&bed, &second).await;
    bed.until_recorded("moves.json", "the other registry to end the move", outcome_is("ended")).await;
    bed.until_held(HOUR_SPENT).await;
    for name in NAMES {
        bed.until_ready(name, 2).await;
    }
    let before = pods(&bed).await;
    let moves = bed.moved().await;
    assert_eq!((moves.len(), &moves[0]["podUid"]), (1, &record["podUid"]));

    first.process().signal(Signal::SIGCONT);
    // Its last look has ended when it has forgotten the pod that stays.
    wait::until("the first registry to know that it does not lead", async || {
        let held = first.metric(&bed.http, "fpga_registry_held_moves").await?;
        let log = std::fs::read_to_string(first.process().log())?;
        Ok((held < 0.5 && log.contains("Another replica leads")).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(leaders(&bed, &[&first]).await.unwrap(), 0);
    until_leads(&bed, &second).await;
    bed.until_looked_again("marker-1").await;
    assert_eq!((bed.moved().await, pods(&bed).await), (moves.clone(), before.clone()));

    // Nor is there a further move in the hour when the first one leads again.
    assert!(second.process().stop(patience()).await.success());
    until_leads(&bed, &first).await;
    bed.until_looked_again("marker-2").await;
    bed.until_held(HOUR_SPENT).await;
    assert_eq!((bed.moved().await, pods(&bed).await), (moves, before));
    bed.stop().await;
}

/// Checks that the extender lets a new pod have these nodes.
async fn is_filtered(bed: &Bed, nodes: &[&str]) {
    let pod = json!({
        "metadata": {"name": "asked", "namespace": "default",
                     "annotations": {"fpga-scheduling.io/bitstreams": "sobel"}},
        "spec": {"containers": [
            {"name": "main", "image": "local", "resources": {"limits": {"fpga-scheduling.io/accelerated": "1"}}},
        ]},
    });
    let body = json!({"Pod": pod, "NodeNames": NODES}).to_string();
    let answer = bed.http.post(&extender::url(&bed.plane, "/filter"), body).await.unwrap();
    let answer = answer.json().unwrap();
    assert_eq!(answer["NodeNames"], json!(nodes), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_api_server_is_away_in_a_move_nodes_are_filtered_and_then_the_move_ends_and_one_leads() {
    let bed = bed_with_boards().await;
    let args = ["--moves-per-hour", "2", "--moves-per-interval", "2"];
    let registries =
        [bed.registry("registry-1", "evict", &args).await, bed.registry("registry-2", "evict", &args).await];
    let registries = registries.each_ref();
    is_filtered(&bed, &NODES).await;
    // The extender knows the lost board before the API server stops.
    let (record, ()) = tokio::join!(until_begun(&bed), bed.publish(NODES[0], Board::Lost));
    bed.plane.stop_answering();
    println!("The API server was stopped when a move was {}", record["outcome"]);
    wait::until("no registry to lead without a renewed lease", async || {
        // The first node's board is lost.
        is_filtered(&bed, &[NODES[1]]).await;
        Ok((leaders(&bed, &registries).await? == 0).then_some(()))
    })
    .await
    .unwrap();
    is_filtered(&bed, &[NODES[1]]).await;
    bed.plane.answer_again();

    wait::until("both moves to end", async || {
        let moves = bed.moved().await;
        let is_over = moves.len() == NAMES.len() && moves.iter().all(outcome_is("ended"));
        is_over.then_some(Some(())).with_context(|| json!(moves).to_string())
    })
    .await
    .unwrap();
    for name in NAMES {
        let ready = bed.until_ready(name, 2).await;
        assert!(ready.iter().all(|pod| node_of(pod) == NODES[1]), "{name} is off the lost board");
    }
    wait::until("one registry to lead", async || Ok((leaders(&bed, &registries).await? == 1).then_some(())))
        .await
        .unwrap();
    let before = pods(&bed).await;
    bed.until_looked_again("marker").await;
    let moved: BTreeSet<String> =
        bed.moved().await.iter().map(|record| record["podUid"].to_string()).collect();
    assert_eq!((bed.moved().await.len(), moved.len()), (2, 2), "no pod is moved twice");
    assert_eq!(pods(&bed).await, before);
    is_filtered(&bed, &[NODES[1]]).await;
    bed.stop().await;
}
