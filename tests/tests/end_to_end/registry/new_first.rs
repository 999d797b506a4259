//! Moves whose replacement comes first: no Ready pod fewer at any moment, also where the registry is killed between the
//! steps, and the number of replicas is as it was in every end.

use super::bed::{Bed, Board, NODES, node_of, outcome_is};
use super::refusals::autoscaler;
use anyhow::Context as _;
use fpga_core::names::NEW_BEFORE_OLD_ANNOTATION;
use fpga_test_kit::patience;
use fpga_tests::testbed::manifests;
use fpga_tests::testbed::restricted::is_ready;
use fpga_tests::testbed::wait;
use futures::StreamExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt as _, watcher};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The annotation by which ReplicaSets choose whom they delete.
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Arguments of a registry that may raise numbers of replicas.
const NEW_FIRST: [&str; 3] = ["--moves-new-before-old", "--moves-recovery", "30s"];

/// Creates a Deployment whose owner wants replacements first, on nodes that are open.
pub async fn create(bed: &Bed, name: &str, replicas: u32) {
    let container = json!({"command": ["/bin/sh", "-c", "exec sleep 3600"]});
    let mut deployment = Bed::deployment(name, replicas, &container);
    let template = deployment.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
    let annotations = template.annotations.get_or_insert_default();
    annotations.insert(NEW_BEFORE_OLD_ANNOTATION.to_owned(), "true".to_owned());
    bed.deployments().create(&PostParams::default(), &deployment).await.unwrap();
    bed.until_ready(name, replicas as usize).await;
}

/// The least number of Ready pods of a Deployment since the beginning.
pub struct LeastReady {
    least: Arc<AtomicUsize>,
    watch: JoinHandle<()>,
}

impl LeastReady {
    /// Watches the pods of the Deployment, all of which are Ready.
    pub async fn of(bed: &Bed, name: &str) -> Self {
        let least = Arc::new(AtomicUsize::new(usize::MAX));
        let config = watcher::Config::default().labels(&format!("app={name}"));
        let mut events = Box::pin(watcher(bed.pods(), config).default_backoff());
        let seen = Arc::clone(&least);
        let watch = tokio::spawn(async move {
            let mut ready: BTreeMap<String, bool> = BTreeMap::new();
            while let Some(event) = events.next().await {
                // After an error the watch lists all pods again.
                let Ok(event) = event else { continue };
                let is_complete = match event {
                    watcher::Event::Init => {
                        ready.clear();
                        false
                    }
                    watcher::Event::InitApply(pod) => {
                        ready.insert(pod.uid().unwrap(), stays(&pod));
                        false
                    }
                    watcher::Event::InitDone => true,
                    watcher::Event::Apply(pod) => {
                        ready.insert(pod.uid().unwrap(), stays(&pod));
                        true
                    }
                    watcher::Event::Delete(pod) => {
                        ready.remove(&pod.uid().unwrap());
                        true
                    }
                };
                if is_complete {
                    seen.fetch_min(ready.values().filter(|ready| **ready).count(), Ordering::SeqCst);
                }
            }
        });
        let least_ready = Self { least, watch };
        wait::until("the pods to be watched", async || {
            Ok((least_ready.least.load(Ordering::SeqCst) < usize::MAX).then_some(()))
        })
        .await
        .unwrap();
        least_ready
    }

    pub fn end(self) -> usize {
        assert!(!self.watch.is_finished(), "the watch has ended");
        self.watch.abort();
        self.least.load(Ordering::SeqCst)
    }
}

fn stays(pod: &Pod) -> bool {
    is_ready(pod) && pod.metadata.deletion_timestamp.is_none()
}

pub async fn replicas(bed: &Bed, name: &str) -> i32 {
    bed.deployments().get(name).await.unwrap().spec.unwrap().replicas.unwrap()
}

async fn deletion_cost(bed: &Bed, pod: &Pod) -> Option<String> {
    bed.pods().get(&pod.name_any()).await.unwrap().annotations().get(DELETION_COST).cloned()
}

/// Checks that the registry may write nothing else of a pod whose owner has set a deletion cost.
async fn is_held_to_its_own_costs(bed: &Bed, pod: &Pod) {
    let token = manifests::token(bed.client(), "fpga-registry", None).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(manifests::client(&bed.plane, &token).await.unwrap());
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    for (patch, because) in [
        (json!({"annotations": {DELETION_COST: null}}), "no deletion cost but its own"),
        (json!({"annotations": {DELETION_COST: "-2147483647"}}), "no deletion cost but its own"),
        (json!({"annotations": {"fpga-scheduling.io/boards": "dm1"}}), "no annotation of a pod but"),
        (json!({"labels": {"app": "mm"}}), "neither labels nor"),
    ] {
        let patched = pods.patch(&pod.name_any(), &dry_run, &Patch::Merge(json!({"metadata": patch}))).await;
        let refused = patched.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(refused.contains(because), "{patch}: {refused}");
    }
}

/// Checks that the registry may change the number of replicas of a Deployment by one alone.
async fn is_held_to_one_replica(bed: &Bed, name: &str) {
    let token = manifests::token(bed.client(), "fpga-registry", None).await.unwrap();
    let deployments: Api<Deployment> =
        Api::default_namespaced(manifests::client(&bed.plane, &token).await.unwrap());
    let dry_run = PatchParams { dry_run: true, ..PatchParams::default() };
    let now = replicas(bed, name).await;
    for (wanted, may) in [(now + 1, true), (now - 1, true), (now + 2, false), (0, false)] {
        let patch = Patch::Merge(json!({"spec": {"replicas": wanted}}));
        let scaled = deployments.patch_scale(name, &dry_run, &patch).await;
        let refused = scaled.err().map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(refused.is_empty(), may, "{now} to {wanted}: {refused}");
        assert!(may || refused.contains("by one at a time"), "{now} to {wanted}: {refused}");
    }
}

/// Waits until all moves are over, and returns them.
async fn until_all_are_over(bed: &Bed) -> Vec<Value> {
    let over = wait::until("all moves to be over", async || {
        let moves = bed.moved().await;
        let is_over =
            |record: &Value| outcome_is("ended")(record) || record["outcome"]["givenUp"].is_string();
        moves.iter().all(is_over).then_some(Some(())).with_context(|| json!(moves).to_string())
    });
    over.await.unwrap();
    bed.moved().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_only_pod_of_a_deployment_is_moved_when_its_replacement_is_ready() {
    let bed = Bed::start_new_first().await;
    create(&bed, "sobel", 1).await;
    // Without the right there is no such move: one Ready pod is too few.
    let never = bed.registry("registry", "evict", &[]).await;
    let pod = bed.lose_board_of("sobel").await;
    bed.until_held("the Deployment has 1 Ready pods, and 2 are needed").await;
    never.process().kill().await;

    let budget = ["create", "poddisruptionbudget", "one-stays", "--selector=app=sobel", "--min-available=1"];
    bed.kubectl(&budget).await;
    let least = LeastReady::of(&bed, "sobel").await;
    // Controllers that count behind know of no Ready pod: whoever believed them would wait for no replacement.
    let controllers = bed.plane.controllers().unwrap();
    controllers.signal(Signal::SIGSTOP);
    let none_ready = Patch::Merge(json!({"status": {"readyReplicas": 0, "availableReplicas": 0}}));
    bed.deployments().patch_status("sobel", &PatchParams::default(), &none_ready).await.unwrap();
    let _registry = bed.registry("registry", "evict", &["--moves-new-before-old"]).await;
    let record = bed.until_recorded("moves.json", "the number to be raised", outcome_is("raised")).await;
    assert_eq!(
        (&record["podUid"], &record["before"]),
        (&json!(pod.uid()), &json!({"replicas": 1, "ready": 1}))
    );
    controllers.signal(Signal::SIGCONT);
    bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert!(!bed.is_there(&pod).await);
    let ready = bed.until_ready("sobel", 1).await;
    assert_ne!(node_of(&ready[0]), node_of(&pod));
    assert_eq!((least.end(), replicas(&bed, "sobel").await), (1, 1), "there was a Ready pod at all times");
    assert!(bed.until_told("MoveBegun").await.note.unwrap().contains(&pod.name_any()));
    bed.until_told("Moved").await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_is_killed_between_the_steps_leaves_the_count_and_no_ready_pod_fewer() {
    let bed = Bed::start_new_first().await;
    for name in ["a", "b"] {
        create(&bed, name, 2).await;
        for pod in bed.ready(name).await.unwrap() {
            bed.give_board(&pod).await;
        }
    }
    let least = [LeastReady::of(&bed, "a").await, LeastReady::of(&bed, "b").await];
    bed.publish(NODES[0], Board::Lost).await;
    // One name, so that nobody waits for the lease; the pauses differ, so that the end comes at different steps.
    let args = [&NEW_FIRST[..], &["--moves-per-interval", "2"]].concat();
    for attempt in 0..10_u64 {
        let registry = bed.registry("registry", "evict", &args).await;
        tokio::time::sleep(Duration::from_millis(100 + 90 * (attempt % 7))).await;
        registry.process().kill().await;
        for name in ["a", "b"] {
            assert!((2..=3).contains(&replicas(&bed, name).await), "{name}");
        }
    }
    let _registry = bed.registry("registry", "evict", &args).await;
    let on_lost = async |name: &str| {
        let ready = bed.until_ready(name, 2).await;
        ready.iter().any(|pod| node_of(pod) == NODES[0])
    };
    wait::until_within("all pods to be on the other node", 2 * patience(), async || {
        let stay = on_lost("a").await || on_lost("b").await;
        let moves = bed.moved().await;
        (!stay).then_some(Some(())).with_context(|| json!(moves).to_string())
    })
    .await
    .unwrap();
    until_all_are_over(&bed).await;
    for (name, least) in ["a", "b"].into_iter().zip(least) {
        assert_eq!((least.end(), replicas(&bed, name).await), (2, 2), "{name}");
    }
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_replacement_the_count_is_given_back_and_the_pod_stays() {
    let bed = Bed::start_new_first().await;
    create(&bed, "sobel", 2).await;
    bed.kubectl(&["create", "quota", "pods", "--hard=pods=2"]).await;
    wait::until("the quota to be counted", async || {
        let used = bed.kubectl(&["get", "quota", "pods", "-o", "jsonpath={.status.used.pods}"]).await;
        Ok((used == "2").then_some(()))
    })
    .await
    .unwrap();
    let least = LeastReady::of(&bed, "sobel").await;
    let args = ["--moves-new-before-old", "--moves-cool-down", "1h"];
    let patient = bed.registry("registry", "evict", &args).await;
    let pod = bed.lose_board_of("sobel").await;
    bed.until_recorded("moves.json", "the number to be raised", outcome_is("raised")).await;
    // Of two Ready pods a ReplicaSet that sees the count first deletes this one, and not the replacement.
    assert_eq!(deletion_cost(&bed, &pod).await.as_deref(), Some("-2147483647"));
    bed.until_replica_failure("sobel").await;
    // The next registry finds the time for the replacement over.
    patient.process().kill().await;
    let registry =
        bed.registry("registry", "evict", &[&args[..], &["--moves-recovery", "2s"]].concat()).await;
    let is_given_up = |record: &Value| record["outcome"]["givenUp"].is_string();
    let record = bed.until_recorded("moves.json", "the move to be given up", is_given_up).await;
    let why = record["outcome"]["givenUp"].as_str().unwrap();
    assert!(why.contains("its replacement is not Ready: ") && why.contains("exceeded quota: pods"), "{why}");
    assert_eq!((replicas(&bed, "sobel").await, deletion_cost(&bed, &pod).await), (2, None));
    assert_eq!(bed.marks(&node_of(&pod)).await, None, "the node takes the workload again");
    bed.until_told("MoveGivenUp").await;
    assert!(bed.is_there(&pod).await);
    assert_eq!((bed.moved().await.len(), least.end()), (1, 2));
    registry.process().kill().await;

    // An owner who changes the number while a replacement is awaited has the last word.
    let least = LeastReady::of(&bed, "sobel").await;
    let own_cost = Patch::Merge(json!({"metadata": {"annotations": {DELETION_COST: "100"}}}));
    bed.pods().patch(&pod.name_any(), &PatchParams::default(), &own_cost).await.unwrap();
    let _registry = bed.registry("registry", "evict", &["--moves-new-before-old"]).await;
    bed.until_recorded("moves.json", "the number to be raised", outcome_is("raised")).await;
    assert_eq!(deletion_cost(&bed, &pod).await.as_deref(), Some("100"), "the owner's cost stays");
    let four = Patch::Merge(json!({"spec": {"replicas": 4}}));
    bed.deployments().patch("sobel", &PatchParams::default(), &four).await.unwrap();
    let is_theirs =
        |record: &Value| record["outcome"]["givenUp"] == "somebody else changed the number of replicas";
    bed.until_recorded("moves.json", "the move to be given up", is_theirs).await;
    assert_eq!((replicas(&bed, "sobel").await, least.end()), (4, 2));
    assert!(bed.is_there(&pod).await);
    assert_eq!(deletion_cost(&bed, &pod).await.as_deref(), Some("100"));
    is_held_to_its_own_costs(&bed, &pod).await;
    is_held_to_one_replica(&bed, "sobel").await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn where_an_autoscaler_owns_the_count_the_pod_stays_with_the_reason() {
    let bed = Bed::start_new_first().await;
    create(&bed, "sobel", 2).await;
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(bed.client().clone());
    autoscalers.create(&PostParams::default(), &autoscaler("sobel", 2, 3)).await.unwrap();
    let _registry = bed.registry("registry", "evict", &NEW_FIRST).await;
    let pod = bed.lose_board_of("sobel").await;
    bed.until_held(
        "the replacement is to come first, and the HorizontalPodAutoscaler sobel owns the number of replicas",
    )
    .await;
    bed.until_looked_again("marker").await;
    assert!(bed.is_there(&pod).await && bed.moved().await.is_empty());
    assert_eq!(replicas(&bed, "sobel").await, 2);
    bed.stop().await;
}
