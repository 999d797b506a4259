//! Two replicas of the extender behind a stand-in for their Service. kube-scheduler's requests alternate between
//! them: the filter request of a pod goes to one, its prioritize request to the other. The replicas share nothing,
//! and yet agree.

use fpga_tests::testbed::bitstreams;
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::observer::Observer;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::nodes::{Advertised, Ground};
use fpga_tests::testbed::scale::pods::Kind;
use fpga_tests::testbed::wait;
use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watcher};
use serde_json::json;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const PODS: usize = 200;
const NODES: usize = 10;

fn per_node(placements: &BTreeMap<String, String>) -> BTreeMap<&str, usize> {
    placements.values().fold(BTreeMap::new(), |mut counts, node| {
        *counts.entry(node.as_str()).or_default() += 1;
        counts
    })
}

/// A bed whose scheduler asks two replicas in turn.
async fn two_replicas() -> (ScaleBed, Observer) {
    let ground =
        Ground { nodes: NODES, boards: NODES, wanted: NODES, pods_per_node: 250, advertised: Advertised::No };
    let mut bed = ScaleBed::start(ground).await.unwrap();
    for replica in 0..2 {
        bed.start_replica(replica, &[]).await.unwrap();
    }
    let address = SocketAddr::from((bed.plane().network().control_plane(), 9470));
    let replicas = vec![bed.replica_url(0, ""), bed.replica_url(1, "")];
    let observer = Observer::start(address, replicas).await.unwrap();
    bed.start_scheduler(&SchedulerConfig::shipped(observer.url()).unwrap()).await.unwrap();
    (bed, observer)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_place_pods_together_and_one_goes_on_alone() {
    let (mut bed, observer) = two_replicas().await;
    bed.create_pods("both", Kind::Fpga, PODS).await.unwrap();
    bed.wait_until_placed("both", PODS).await.unwrap();
    assert!(bed.failed_attempts("both").await.unwrap().is_empty());
    let calls = observer.calls();
    for replica in 0..2 {
        let answered = calls.iter().filter(|call| call.replica == replica).count();
        assert!(answered >= PODS / 2, "replica {replica} answered {answered} of {} calls", calls.len());
    }
    bed.kill_replica(0).await;
    bed.create_pods("alone", Kind::Fpga, PODS).await.unwrap();
    bed.wait_until_placed("alone", PODS).await.unwrap();
    assert!(bed.failed_attempts("alone").await.unwrap().is_empty());
    assert!(observer.stop().await.iter().skip(calls.len()).all(|call| call.replica == 1));
    bed.stop().await;
}

/// A wake-up of rejected pods that a node shows.
#[derive(Debug, Clone)]
struct WakeUp {
    seen: Instant,
    /// The version of the node, which orders the wake-up among all writes of the API server.
    version: u64,
    value: String,
}

/// The wake-ups that nodes show, the first one first.
#[derive(Clone, Default)]
struct WakeUps(Arc<Mutex<Vec<WakeUp>>>);

/// The API server's version of an object.
fn version(object: &impl ResourceExt) -> u64 {
    object.resource_version().unwrap().parse().unwrap()
}

impl WakeUps {
    async fn watch(self, nodes: Api<Node>) {
        let mut events = std::pin::pin!(watcher(nodes, watcher::Config::default()).touched_objects());
        while let Some(node) = events.next().await {
            let node = node.unwrap();
            let Some(value) = node.annotations().get("fpga-scheduling.io/library-version") else { continue };
            let mut seen = self.0.lock().unwrap();
            if seen.last().is_none_or(|last| last.value != *value) {
                seen.push(WakeUp { seen: Instant::now(), version: version(&node), value: value.clone() });
            }
        }
    }

    fn seen(&self) -> Vec<WakeUp> {
        self.0.lock().unwrap().clone()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_wake_rejected_pods_at_most_once_a_second_in_all_and_after_the_last_change() {
    /// Changes, more than ten a second.
    const CHANGES: u32 = 60;
    let ground = Ground { nodes: 2, boards: 2, wanted: 2, pods_per_node: 250, advertised: Advertised::No };
    let mut bed = ScaleBed::start(ground).await.unwrap();
    let bitstreams = bitstreams::serve(bed.plane(), "default").await.unwrap();
    let client = bed.plane().client().clone();
    for replica in 0..2 {
        bed.start_replica(replica, &["--library-namespace", "default"]).await.unwrap();
    }
    let wake_ups = WakeUps::default();
    let watch = tokio::spawn(wake_ups.clone().watch(Api::all(client)));

    let change = async |number: u32| {
        let bitstream = json!({
            "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream", "metadata": {"name": "sobel"},
            "spec": {"variants": [{
                "vendor": "none", "board": format!("b{number}"), "shell": "1.0", "bytes": 1,
                "digest": format!("sha256:{}", "0a".repeat(32)),
                "source": {"https": "https://files.example/bitstream"},
            }]},
        });
        let params = PatchParams::apply("test").force();
        version(&bitstreams.patch("sobel", &params, &Patch::Apply(&bitstream)).await.unwrap())
    };
    let begin = Instant::now();
    for number in 1..CHANGES {
        change(number).await;
        // The rate of changes is the point.
        tokio::time::sleep(Duration::from_millis(80)).await;
    }
    bed.kill_replica(0).await;
    let last = change(CHANGES).await;
    let woken =
        async || Ok(wake_ups.seen().last().is_some_and(|wake_up| wake_up.version > last).then_some(()));
    wait::until("a wake-up after the last change", woken).await.unwrap();
    let seen = wake_ups.seen();
    let took = seen[seen.len() - 1].seen - begin;
    println!("{} wake-ups in {took:?}", seen.len());
    assert!(seen.len() >= 2, "{seen:?}");
    // All writes came after the beginning, and before the last one was seen.
    assert!((seen.len() - 1) as f64 <= took.as_secs_f64(), "{} in {took:?}", seen.len());
    watch.abort();
    bed.stop().await;
}

mod timing {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "measures the machine: make test-timing"]
    async fn each_of_two_replicas_sees_the_others_decisions_so_that_pods_do_not_herd() {
        let (bed, _observer) = two_replicas().await;
        bed.create_pods("both", Kind::Fpga, PODS).await.unwrap();
        bed.wait_until_placed("both", PODS).await.unwrap();
        let placements = bed.placements("both").await.unwrap();
        let counts = per_node(&placements);
        println!("two replicas: {counts:?}");
        assert!(counts.values().all(|pods| *pods <= 2 * PODS / NODES), "{counts:?}");
        bed.stop().await;
    }
}
