//! Two replicas of the registry are killed at random in the middle of moves and of changes of the library:
//! `make registry-kills`.

use super::bed::{Bed, Board, LONG, NODES};
use super::new_first::{self, LeastReady};
use super::{bitstream, bitstreams};
use anyhow::Context as _;
use fpga_tests::soak::Chance;
use fpga_tests::testbed::registry::{Registry, records};
use fpga_tests::testbed::wait;
use kube::ResourceExt as _;
use kube::api::{Api, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NAMES: [&str; 4] = ["a", "b", "c", NEW_FIRST];
/// The Deployment whose replacements come first.
const NEW_FIRST: &str = "d";
const REPLICAS: [&str; 2] = ["registry-1", "registry-2"];
/// Most milliseconds between a change and a kill.
const LATEST_KILL_MS: u64 = 1_500;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable)
        .ok()
        .map(|text| text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

/// Creates, changes or deletes one of a few Bitstreams.
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
    for name in NAMES {
        if name == NEW_FIRST {
            new_first::create(&bed, name, 2).await;
        } else {
            bed.create(name, 2).await;
        }
        let selector = format!("--selector=app={name}");
        bed.kubectl(&["create", "poddisruptionbudget", name, &selector, "--min-available=1"]).await;
    }
    let least = LeastReady::of(&bed, NEW_FIRST).await;
    let bounds = ["--moves-per-hour", "200", "--moves-per-interval", "4", "--moved-off-time", "3s"];
    let args = [&bounds[..], &["--moves-new-before-old", "--moves-recovery", "20s"]].concat();
    let mut running: Vec<Registry> = Vec::new();
    for name in REPLICAS {
        running.push(bed.registry(name, "evict", &args).await);
    }
    for _ in 0..kills {
        give_boards(&bed).await;
        let lost = usize::from(chance.below(2) == 0);
        bed.publish(NODES[1 - lost], Board::There).await;
        bed.publish(NODES[lost], Board::Lost).await;
        change_library(&library, &mut chance).await;
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
    let moves = wait::until("all moves to end", LONG, async || {
        let moves = records(bed.client(), "moves.json").await?;
        let is_over =
            |record: &Value| record["outcome"] == "ended" || record["outcome"].get("givenUp").is_some();
        moves.iter().all(is_over).then_some(Some(moves.clone())).with_context(|| json!(moves).to_string())
    });
    let moves = moves.await.unwrap();
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
    for name in NAMES {
        bed.until_ready(name, 2).await;
        assert_eq!(new_first::replicas(&bed, name).await, 2, "{name}");
    }
    assert_eq!(least.end(), 2, "{NEW_FIRST} had a Ready pod fewer");
    wait::until("no node to keep a workload off", LONG, async || {
        let marks = [bed.marks(NODES[0]).await, bed.marks(NODES[1]).await];
        (marks == [None, None]).then_some(Some(())).with_context(|| format!("{marks:?}"))
    })
    .await
    .unwrap();
    wait::until("the counts of all Bitstreams", LONG, async || {
        let all = library.list(&ListParams::default()).await?;
        let is_right = |object: &DynamicObject| {
            let status = &object.data["status"];
            let seen = &status["conditions"][0]["observedGeneration"];
            status["validNodes"] == 2 && *seen == json!(object.metadata.generation)
        };
        all.items.iter().all(is_right).then_some(Some(())).with_context(|| json!(all.items).to_string())
    })
    .await
    .unwrap();
    wait::until("one of the replicas to lead", LONG, async || {
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
