//! Two replicas of the registry are killed at random in the middle of moves and of changes of the library, while boards are
//! lost and wanted, functions start cold, and an autoscaler changes a number of replicas: `make registry-kills`.

use super::bed::{Bed, Board, NODES, node_of};
use super::causes::used_each_second;
use super::new_first::{self, LeastReady};
use super::refusals::{autoscale, autoscaler};
use super::{bitstream, bitstreams};
use anyhow::Context as _;
use fpga_core::names::NEW_BEFORE_OLD_ANNOTATION;
use fpga_test_kit::patience;
use fpga_tests::testbed::chance::Chance;
use fpga_tests::testbed::registry::{Registry, records};
use fpga_tests::testbed::wait;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The Deployments. Each names a bitstream as it is called.
const NAMES: [&str; 4] = ["a", "b", SCALED, NEW_FIRST];
/// The Deployment that an autoscaler scales.
const SCALED: &str = "c";
/// The Deployment whose replacements come first.
const NEW_FIRST: &str = "d";
const REPLICAS: [&str; 2] = ["registry-1", "registry-2"];
/// Most milliseconds between a change and a kill.
const LATEST_KILL_MS: u64 = 1_500;
/// Bitstreams of a namespace that count.
const QUOTA: usize = 2;
/// Fewest kills in which moves for each cause are to be expected.
const MANY_KILLS: u64 = 20;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Creates the Deployments, each with a budget of one pod that stays, and the autoscaler.
async fn create(bed: &Bed) -> Api<HorizontalPodAutoscaler> {
    let container = json!({"command": ["/bin/sh", "-c", "exec sleep 3600"]});
    for name in NAMES {
        let mut deployment = Bed::deployment(name, 2, &container);
        let template = deployment.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
        let annotations = template.annotations.get_or_insert_default();
        annotations.insert("fpga-scheduling.io/bitstreams".to_owned(), name.to_owned());
        if name == NEW_FIRST {
            annotations.insert(NEW_BEFORE_OLD_ANNOTATION.to_owned(), "true".to_owned());
        }
        bed.deployments().create(&PostParams::default(), &deployment).await.unwrap();
        bed.until_ready(name, 2).await;
        let selector = format!("--selector=app={name}");
        bed.kubectl(&["create", "poddisruptionbudget", name, &selector, "--min-available=1"]).await;
    }
    let autoscalers: Api<HorizontalPodAutoscaler> = Api::default_namespaced(bed.client().clone());
    autoscalers.create(&PostParams::default(), &autoscaler(SCALED, 2, 2)).await.unwrap();
    autoscalers
}

/// Has one of the two boards lost, or wanted by another pod, or has all functions called there and none on the other board.
async fn change_boards(bed: &Bed, chance: &mut Chance) {
    let troubled = usize::from(chance.below(2) == 0);
    let (node, other) = (NODES[troubled], NODES[1 - troubled]);
    let (used, unused) = (used_each_second(&NAMES), used_each_second(&[]));
    let (trouble, used, unused) = match chance.below(3) {
        0 => (Board::Lost, None, None),
        1 => (Board::Wanted, None, Some(&*unused)),
        _ => (Board::There, Some(&*used), Some(&*unused)),
    };
    bed.publish_used(other, Board::There, unused).await;
    bed.publish_used(node, trouble, used).await;
}

/// Creates, changes or deletes one of a few Bitstreams of a tenant.
async fn change_library(library: &Api<DynamicObject>, chance: &mut Chance) {
    let name = format!("x{}", chance.below(4));
    if chance.below(3) == 0 {
        // There may be none of this name.
        let _ = library.delete(&name, &DeleteParams::default()).await;
        return;
    }
    let mut object = bitstream(&name);
    object.data["spec"]["variants"][0]["bytes"] = json!(1 + chance.below(1_000));
    let params = PatchParams::apply("test").force();
    library.patch(&name, &params, &Patch::Apply(&object)).await.unwrap();
}

/// What must hold at any moment, also just after a kill.
async fn check(bed: &Bed) {
    let moves = bed.moved().await;
    let gone = moves.iter().filter(|record| record["outcome"].get("givenUp").is_none());
    let gone: Vec<&str> = gone.map(|record| record["podUid"].as_str().unwrap()).collect();
    assert_eq!(
        gone.iter().collect::<BTreeSet<_>>().len(),
        gone.len(),
        "a pod is moved twice: {}",
        json!(moves)
    );
    records(bed.client(), "held.json").await.unwrap();
    for name in NAMES {
        assert!(!bed.ready(name).await.unwrap().is_empty(), "{name} has no Ready pod");
    }
}

/// Gives every pod the board of its node, as the node plugin does before it starts.
async fn give_boards(bed: &Bed) {
    for name in NAMES {
        for pod in bed.ready(name).await.unwrap() {
            if !pod.annotations().contains_key(fpga_core::names::BOARDS_ANNOTATION) {
                bed.give_board(&pod).await;
            }
        }
    }
}

/// Waits until all moves are over, and returns them.
async fn until_all_are_over(bed: &Bed) -> Vec<Value> {
    let over = wait::until("all moves to end", async || {
        let moves = records(bed.client(), "moves.json").await?;
        let is_over =
            |record: &Value| record["outcome"] == "ended" || record["outcome"].get("givenUp").is_some();
        moves.iter().all(is_over).then_some(Some(moves.clone())).with_context(|| json!(moves).to_string())
    });
    over.await.unwrap()
}

/// Waits until each Deployment has the pods that its owner wants, and no node keeps a workload off.
async fn until_at_rest(bed: &Bed) {
    // The autoscaler looks every 5 s. Moves that are over leave no number to wait for.
    wait::until("the autoscaler to want two", async || {
        Ok((new_first::replicas(bed, SCALED).await == 2).then_some(()))
    })
    .await
    .unwrap();
    for name in NAMES {
        bed.until_ready(name, 2).await;
        assert_eq!(new_first::replicas(bed, name).await, 2, "{name}");
    }
    wait::until("no node to keep a workload off", async || {
        let marks = [bed.marks(NODES[0]).await, bed.marks(NODES[1]).await];
        (marks == [None, None]).then_some(Some(())).with_context(|| format!("{marks:?}"))
    })
    .await
    .unwrap();
}

/// Has the board with the most pods wanted, and waits until all of them are off it: nothing that the kills left holds it.
async fn until_a_wanted_board_is_free(bed: &Bed) {
    give_boards(bed).await;
    let mut on_board: BTreeMap<String, Vec<Pod>> = BTreeMap::new();
    for name in NAMES {
        for pod in bed.ready(name).await.unwrap() {
            on_board.entry(node_of(&pod)).or_default().push(pod);
        }
    }
    let (node, pods) = on_board.into_iter().max_by_key(|(_, pods)| pods.len()).unwrap();
    bed.publish(&node, Board::Wanted).await;
    wait::until_within("the wanted board to be free", 2 * patience(), async || {
        let mut held = Vec::new();
        for pod in &pods {
            if bed.is_there(pod).await {
                held.push(pod.name_any());
            }
        }
        let why = records(bed.client(), "held.json").await?;
        held.is_empty().then_some(Some(())).with_context(|| format!("{held:?} are there: {}", json!(why)))
    })
    .await
    .unwrap();
    bed.publish(&node, Board::There).await;
    until_all_are_over(bed).await;
    until_at_rest(bed).await;
}

/// Waits until the oldest Bitstreams of the tenant count, as many as the quota has, and no others.
async fn until_judged(library: &Api<DynamicObject>) {
    wait::until("the verdicts on all Bitstreams", async || {
        let mut all = library.list(&ListParams::default()).await?.items;
        all.sort_by_key(|object| (object.creation_timestamp(), object.name_any()));
        let verdict = |object: &DynamicObject| {
            let conditions = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let accepted = conditions.into_iter().find(|condition| condition["type"] == "Accepted")?;
            let is_present = accepted["observedGeneration"] == json!(object.metadata.generation);
            is_present.then(|| accepted["reason"].as_str().unwrap_or_default().to_owned())
        };
        let verdicts: Vec<Option<String>> = all.iter().map(verdict).collect();
        let is_right = verdicts.iter().enumerate().all(|(place, verdict)| {
            let due = if place < QUOTA { "WithinQuota" } else { "TooManyBitstreams" };
            verdict.as_deref() == Some(due)
        });
        is_right.then_some(Some(())).with_context(|| format!("{verdicts:?}"))
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make registry-kills"]
async fn registries_that_are_killed_at_random_leave_nothing_half_done() {
    let kills = number("REGISTRY_KILLS").unwrap_or(50);
    let by_clock = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_secs());
    let seed = number("REGISTRY_KILLS_SEED").unwrap_or_else(by_clock);
    println!("{kills} kills, seed {seed} (REGISTRY_KILLS_SEED={seed} makes the same choices)");
    let mut chance = Chance::new(seed);
    let bed = Bed::start_new_first().await;
    let library = bitstreams(bed.client());
    let autoscalers = create(&bed).await;
    let least = LeastReady::of(&bed, NEW_FIRST).await;
    let bounds = ["--moves-per-hour", "200", "--moves-per-interval", "4", "--moved-off-time", "3s"];
    let cold_starts = ["--moves-least-gain", "600", "--rebalance-interval", "2s"];
    let quota = format!("{QUOTA},4KiB");
    let own = ["--library-namespace", "kube-fpga", "--own-bitstreams", &quota];
    let first = ["--moves-new-before-old", "--moves-recovery", "20s"];
    let args = [&bounds[..], &first, &cold_starts, &own].concat();
    let mut running: Vec<Registry> = Vec::new();
    for name in REPLICAS {
        running.push(bed.registry(name, "evict", &args).await);
    }
    for _ in 0..kills {
        give_boards(&bed).await;
        change_boards(&bed, &mut chance).await;
        change_library(&library, &mut chance).await;
        autoscale(&autoscalers, SCALED, if chance.below(2) == 0 { 2 } else { 3 }).await;
        // The moment of a kill is the point: no step is waited for.
        tokio::time::sleep(Duration::from_millis(500 + chance.below(LATEST_KILL_MS))).await;
        let victim = usize::from(chance.below(2) == 0);
        running[victim].process().kill().await;
        check(&bed).await;
        running[victim] = bed.registry(REPLICAS[victim], "evict", &args).await;
    }
    for node in NODES {
        bed.publish(node, Board::There).await;
    }
    autoscale(&autoscalers, SCALED, 2).await;
    let moves = until_all_are_over(&bed).await;
    let mut causes: BTreeMap<&str, u32> = BTreeMap::new();
    for record in &moves {
        *causes.entry(record["cause"].as_str().unwrap()).or_default() += 1;
    }
    println!("causes: {causes:?}");
    if kills >= MANY_KILLS {
        for cause in ["board_lost", "board_wanted", "cold_starts"] {
            assert!(causes.contains_key(cause), "the kills met no move because of {cause}: {causes:?}");
        }
    }
    let first = moves.iter().filter(|record| record["workload"] == NEW_FIRST);
    let (ended, given_up): (Vec<&Value>, Vec<&Value>) =
        first.partition(|record| record["outcome"] == "ended");
    println!(
        "{} moves; of those whose replacement came first {} ended and {} were given up",
        moves.len(),
        ended.len(),
        given_up.len()
    );
    assert!(!ended.is_empty(), "the kills met no move whose replacement came first: {given_up:?}");
    assert!(moves.len() as u64 >= kills / 10, "the kills met few moves: {}", json!(moves));
    until_at_rest(&bed).await;
    assert_eq!(least.end(), 2, "{NEW_FIRST} had a Ready pod fewer");
    until_a_wanted_board_is_free(&bed).await;
    wait::until("the counts of all Bitstreams", async || {
        let all = library.list(&ListParams::default()).await?;
        let is_right = |object: &DynamicObject| {
            let status = &object.data["status"];
            let seen = &status["conditions"][0]["observedGeneration"];
            let conditions = status["conditions"].as_array().into_iter().flatten();
            // A Bitstream beyond the quota is valid nowhere.
            let is_refused =
                conditions.into_iter().any(|it| it["type"] == "Accepted" && it["status"] == "False");
            let valid = if is_refused { 0 } else { 2 };
            status["validNodes"] == valid && *seen == json!(object.metadata.generation)
        };
        all.items.iter().all(is_right).then_some(Some(())).with_context(|| json!(all.items).to_string())
    })
    .await
    .unwrap();
    until_judged(&library).await;
    wait::until("one of the replicas to lead", async || {
        let mut leaders = 0.0;
        for registry in &running {
            leaders += registry.metric(&bed.http, "fpga_registry_leads").await?;
        }
        Ok((leaders > 0.0).then_some(leaders))
    })
    .await
    .map(|leaders| assert!(leaders < 1.5, "both replicas lead"))
    .unwrap();
    check(&bed).await;
    bed.stop().await;
}
