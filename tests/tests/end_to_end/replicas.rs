//! Two replicas of the extender behind a stand-in for their Service. kube-scheduler's requests alternate between
//! them: the filter request of a pod goes to one, its prioritize request to the other. The replicas share nothing,
//! and yet agree.

use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::observer::Observer;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::nodes::{Advertised, Ground};
use fpga_tests::testbed::scale::pods::Kind;
use std::collections::BTreeMap;
use std::net::SocketAddr;

const PODS: usize = 200;
const NODES: usize = 10;

fn per_node(placements: &BTreeMap<String, String>) -> BTreeMap<&str, usize> {
    placements.values().fold(BTreeMap::new(), |mut counts, node| {
        *counts.entry(node.as_str()).or_default() += 1;
        counts
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_replicas_place_pods_together_and_one_goes_on_alone() {
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

    bed.create_pods("both", Kind::Fpga, PODS).await.unwrap();
    bed.wait_until_placed("both", PODS).await.unwrap();
    assert!(bed.failed_attempts("both").await.unwrap().is_empty());
    let calls = observer.calls();
    for replica in 0..2 {
        let answered = calls.iter().filter(|call| call.replica == replica).count();
        assert!(answered >= PODS / 2, "replica {replica} answered {answered} of {} calls", calls.len());
    }
    // Each replica sees the other's decisions when pods are bound, so the pods don't herd.
    let placements = bed.placements("both").await.unwrap();
    let counts = per_node(&placements);
    println!("two replicas: {counts:?}");
    assert!(counts.values().all(|pods| *pods <= 2 * PODS / NODES), "{counts:?}");

    bed.kill_replica(0).await;
    bed.create_pods("alone", Kind::Fpga, PODS).await.unwrap();
    bed.wait_until_placed("alone", PODS).await.unwrap();
    assert!(bed.failed_attempts("alone").await.unwrap().is_empty());
    assert!(observer.stop().await.iter().skip(calls.len()).all(|call| call.replica == 1));
    bed.stop().await;
}
