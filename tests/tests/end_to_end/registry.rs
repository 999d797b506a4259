//! fpga-registry on a real control plane with controllers, kube-scheduler and extender: one of two replicas works, what
//! it counts is right, and whom it moves and whom it leaves alone.

mod bed;
mod causes;
mod kills;
mod lead;
mod marks;
mod new_first;
mod own_bitstreams;
mod records;
mod refusals;

use anyhow::Context as _;
use bed::{Bed, Board, node_of, other, outcome_is};
use fpga_test_kit::patience;
use fpga_tests::testbed::bitstreams::bitstreams;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::registry::{self, Registry};
use fpga_tests::testbed::wait;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;

fn bitstream(name: &str) -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream", "metadata": {"name": name},
        "spec": {"variants": [{
            "vendor": "intel", "board": "a10", "shell": "1.2", "bytes": 1,
            "digest": format!("sha256:{}", "0a".repeat(32)), "source": {"https": "https://files.example/x"},
        }]},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_registries_one_writes_the_counts_and_the_other_goes_on_when_it_is_killed() {
    let bed = Bed::start().await;
    let bitstreams = bitstreams(bed.client());
    bitstreams.create(&PostParams::default(), &bitstream("sobel")).await.unwrap();
    bed.create("sobel", 2).await;
    let first = bed.registry("registry-1", "off", &[]).await;
    let leads = async |registry: &Registry| {
        let led = async || {
            let leads = registry.metric(&bed.http, "fpga_registry_leads").await?;
            Ok((leads > 0.0).then_some(()))
        };
        wait::until("the registry to lead", led).await.unwrap();
    };
    leads(&first).await;
    let second = bed.registry("registry-2", "off", &[]).await;
    let counted = async |nodes: i64, resident: i64, pods: i64| {
        let counts = json!([nodes, resident, pods]);
        let look = async || {
            let status = bitstreams.get("sobel").await?.data["status"].clone();
            let found = json!([status["validNodes"], status["residentNodes"], status["pods"]]);
            let text = status.to_string();
            (found == counts).then_some(Some(status)).context(text)
        };
        wait::until("the counts", look).await.unwrap()
    };
    let status = counted(2, 2, 2).await;
    assert_eq!(status["conditions"][0]["type"], "Available");
    assert_eq!(
        (&status["conditions"][0]["status"], &status["conditions"][0]["observedGeneration"]),
        (&json!("True"), &json!(1))
    );
    let version = async || bitstreams.get("sobel").await.unwrap().resource_version();
    let before = version().await;
    assert!(second.metric(&bed.http, "fpga_registry_status_writes_total").await.unwrap() < 1.0);

    first.process().kill().await;
    leads(&second).await;
    assert_eq!(version().await, before, "what has not changed is not written");
    let scale = json!({"spec": {"replicas": 3}});
    bed.deployments().patch("sobel", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    counted(2, 2, 3).await;
    wait::until("the write to be counted", async || {
        let writes = second.metric(&bed.http, "fpga_registry_status_writes_total").await?;
        Ok((writes > 0.0).then_some(()))
    })
    .await
    .unwrap();

    // A replica that is told to end gives the lease back, and does not wait for it to be abandoned.
    let third = bed.registry("registry-3", "off", &[]).await;
    assert!(second.process().stop(patience()).await.success());
    leads(&third).await;
    for (command, words) in [
        ("bitstreams", ["default", "sobel", "2", "3"]),
        ("boards", ["n1", "dm0", "intel/a10/1.2", "healthy"]),
        ("functions", ["default", "ReplicaSet/sobel-", "3/3", "sobel"]),
        ("moves", ["AGE", "WORKLOAD", "CAUSE", "RECKONING"]),
    ] {
        bed.until_ready("sobel", 3).await;
        let text = bed.plugin(&[command]);
        assert!(words.iter().all(|word| text.contains(word)), "{command}: {text}");
    }
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_a_move_is_suggested_on_the_deployment_and_no_pod_goes() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let _registry = bed.registry("registry", "suggest", &["--moves-cool-down", "1h"]).await;
    let pod = bed.lose_board_of("sobel").await;
    let record = bed.until_recorded("moves.json", "a suggestion", outcome_is("suggested")).await;
    assert_eq!((&record["pod"], &record["cause"]), (&json!(pod.name_any()), &json!("board_lost")));
    assert!(record["reckoning"].as_str().unwrap().contains("its board dm0 has been lost"), "{record}");
    let event = bed.until_told("MoveSuggested").await;
    let regarding = event.regarding.unwrap();
    assert_eq!((regarding.kind.as_deref(), regarding.name.as_deref()), (Some("Deployment"), Some("sobel")));
    let note = event.note.unwrap();
    assert!(note.contains(&pod.name_any()), "{note}");
    assert!(note.ends_with("delete the pod, or set registry.moves.mode=evict"), "{note}");
    bed.until_looked_again("marker").await;
    assert!(bed.is_there(&pod).await);
    assert_eq!(bed.moved().await.len(), 1, "it is suggested once per cool-down");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_moved_off_a_board_that_another_one_waits_for() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let _registry = bed.registry("registry", "evict", &[]).await;
    let pod = bed.ready("sobel").await.unwrap().remove(0);
    bed.give_board(&pod).await;
    let elsewhere = other(&node_of(&pod));
    let taint = |effect: &str| format!("maintenance=now:{effect}");
    bed.kubectl(&["taint", "node", elsewhere, &taint("NoSchedule")]).await;
    bed.publish(&node_of(&pod), Board::Wanted).await;
    bed.until_looked_again("marker").await;
    assert_eq!(bed.moved().await.len(), 0, "a tainted node takes over no load");
    bed.kubectl(&["taint", "node", elsewhere, &taint("NoSchedule-")]).await;
    let record = bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert_eq!((&record["podUid"], &record["cause"]), (&json!(pod.uid()), &json!("board_wanted")));
    assert!(!bed.is_there(&pod).await);
    let ready = bed.until_ready("sobel", 2).await;
    assert!(ready.iter().all(|ready| ready.uid() != pod.uid()));
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_no_other_node_takes_stays_with_the_reason_until_one_does() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let pod = bed.ready("sobel").await.unwrap().remove(0);
    let elsewhere = other(&node_of(&pod));
    bed.kubectl(&["cordon", elsewhere]).await;
    bed.give_board(&pod).await;
    bed.publish(&node_of(&pod), Board::Lost).await;
    let _registry = bed.registry("registry", "evict", &[]).await;
    bed.until_recorded("held.json", "the pod to stay", |held| {
        held["reason"].as_str().is_some_and(|reason| reason.starts_with("no other node has a board for it"))
    })
    .await;
    assert!(bed.is_there(&pod).await && bed.moved().await.is_empty());
    bed.kubectl(&["uncordon", elsewhere]).await;
    let record = bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert_eq!(record["podUid"], json!(pod.uid()));
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_moved_when_its_budget_allows_and_does_not_come_back() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let budget = ["create", "poddisruptionbudget", "all-stay", "--selector=app=sobel", "--min-available=2"];
    kubectl(&bed.plane, &budget).await.unwrap();
    let _registry = bed.registry("registry", "evict", &[]).await;
    let pod = bed.lose_board_of("sobel").await;
    let node = node_of(&pod);
    bed.until_held("the PodDisruptionBudget all-stay forbids it").await;
    assert!(bed.is_there(&pod).await && bed.moved().await.is_empty());

    kubectl(&bed.plane, &["delete", "poddisruptionbudget", "all-stay"]).await.unwrap();
    let record = bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert_eq!((&record["podUid"], &record["node"]), (&json!(pod.uid()), &json!(node)));
    assert!(!bed.is_there(&pod).await);
    assert_eq!(bed.moved().await.len(), 1);
    let marks = bed.marks(&node).await.unwrap();
    let controller = pod.metadata.owner_references.as_ref().unwrap()[0].uid.clone();
    assert!(!marks.contains(&controller), "who reads nodes learns no UID: {marks}");
    assert!(marks.contains(&fpga_core::node_state::controller("default", &controller)), "{marks}");

    // The board is back, and the other node's is lost: the workload is still kept off.
    bed.publish(&node, Board::There).await;
    bed.publish(other(&node), Board::Lost).await;
    let scale = json!({"spec": {"replicas": 3}});
    bed.deployments().patch("sobel", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(bed.client().clone());
    let refused = wait::until("kube-scheduler's reason", async || {
        let events = events.list(&ListParams::default()).await?;
        let notes = events.into_iter().filter_map(|event| event.note);
        Ok(notes.into_iter().find(|note| note.contains("moved this workload off the node")))
    });
    assert!(refused.await.unwrap().contains("FPGA device is unhealthy"));
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_are_left_alone_and_a_replacement_that_never_becomes_ready_ends_the_moves() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    bed.create("mm", 3).await;
    let registry = bed.registry("registry", "evict", &["--moves-per-hour", "2"]).await;
    // A new version that never becomes Ready: its port is declared, and nobody listens.
    let stuck = json!({"command": ["/bin/sh", "-c", "exec sleep 3600"], "ports": [{"containerPort": 9999}]});
    let rolled = Bed::deployment("sobel", 2, &stuck);
    bed.deployments().patch("sobel", &PatchParams::default(), &Patch::Merge(&rolled)).await.unwrap();
    wait::until("the rollout to begin", async || {
        let pods = bed.pods().list(&ListParams::default().labels("app=sobel")).await?;
        Ok((pods.items.len() == 3).then_some(()))
    })
    .await
    .unwrap();
    let pod = bed.lose_board_of("sobel").await;
    bed.until_held("the Deployment is rolling out or being scaled").await;
    assert!(bed.is_there(&pod).await && bed.moved().await.is_empty());

    // The pods of the other Deployment have the lost board, too. One goes; its replacement has nowhere to become Ready.
    bed.publish(other(&node_of(&pod)), Board::Lost).await;
    for pod in bed.ready("mm").await.unwrap() {
        bed.give_board(&pod).await;
    }
    bed.until_recorded("moves.json", "a move of the other", |record| record["workload"] == "mm").await;
    bed.until_held("the last move of the Deployment has not ended").await;
    bed.until_looked_again("marker").await;
    let moves = bed.moved().await;
    assert_eq!((moves.len(), &moves[0]["outcome"]), (1, &json!("evicted")));
    assert_eq!(bed.ready("mm").await.unwrap().len(), 2);
    let mm = bed.deployments().get("mm").await.unwrap();
    assert_eq!(mm.spec.unwrap().replicas, Some(3), "nobody has changed the number of replicas");
    registry.process().check_running().unwrap();
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_is_killed_again_and_again_loses_no_pod_and_spends_no_more_than_its_hour() {
    let bed = Bed::start().await;
    for name in ["a", "b", "c"] {
        bed.create(name, 2).await;
    }
    for name in ["a", "b", "c"] {
        for pod in bed.ready(name).await.unwrap() {
            bed.give_board(&pod).await;
        }
    }
    let args = ["--moves-per-hour", "2", "--moves-per-interval", "3"];
    bed.publish("n1", Board::Lost).await;
    // One name, as a container has that starts again in its pod, so that nobody waits for the lease. The pauses differ, so
    // that the end comes at different steps.
    for attempt in 0..16_u64 {
        let registry = bed.registry("registry", "evict", &args).await;
        tokio::time::sleep(Duration::from_millis(500 + 130 * (attempt % 7))).await;
        registry.process().kill().await;
        let workloads: Vec<String> =
            bed.moved().await.iter().map(|record| record["workload"].as_str().unwrap().to_owned()).collect();
        assert!(workloads.len() <= 2, "{workloads:?}");
        for name in ["a", "b", "c"] {
            assert!(!bed.ready(name).await.unwrap().is_empty(), "{name} has no Ready pod");
        }
    }
    let _registry = bed.registry("registry", "evict", &args).await;
    for name in ["a", "b", "c"] {
        bed.until_ready(name, 2).await;
    }
    bed.until_recorded("moves.json", "the moves to end", outcome_is("ended")).await;
    wait::until("all moves to end", async || {
        let moves = registry::records(bed.client(), "moves.json").await?;
        moves.iter().all(outcome_is("ended")).then_some(Some(())).with_context(|| json!(moves).to_string())
    })
    .await
    .unwrap();
    let moves = bed.moved().await;
    let evicted: std::collections::BTreeSet<&str> =
        moves.iter().map(|record| record["podUid"].as_str().unwrap()).collect();
    assert_eq!(evicted.len(), moves.len(), "no pod is moved twice");
    bed.stop().await;
}
