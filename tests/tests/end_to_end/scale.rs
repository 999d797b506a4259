//! A thousand nodes, some with boards, of which one has the bitstream. A scheduler of our own and both shipped wirings of
//! the cluster's, on a real kube-scheduler, with the extender running and dead. Pods are placed and never run.

use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::gate::observe;
use fpga_tests::testbed::scale::nodes::{BITSTREAM, BOARD, Ground, name};
use fpga_tests::testbed::scale::pods::Kind;
use std::collections::BTreeSet;

const PODS: usize = 80;

async fn start() -> ScaleBed {
    let mut bed = ScaleBed::start(Ground::of_the_gate()).await.unwrap();
    bed.start_extender(&[]).await.unwrap();
    bed
}

fn boards(bed: &ScaleBed) -> BTreeSet<String> {
    bed.ground().with_boards().map(name).collect()
}

async fn all_on_boards(bed: &ScaleBed, batch: &str) -> bool {
    let boards = boards(bed);
    bed.placements(batch).await.unwrap().values().all(|node| boards.contains(node))
}

async fn asked(bed: &ScaleBed) -> f64 {
    let metrics = bed.http().get(&bed.extender_url("/metrics")).await.unwrap();
    metrics.metric("fpga_extender_request_duration_seconds_count")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_300_nodes_that_advertise_boards_all_are_judged_and_the_20_that_fit_are_never_missed() {
    let ground = Ground { wanted: 20, ..Ground::advertising(1_000, 300) };
    let mut bed = ScaleBed::start(ground).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("extender.yaml");
    let valid = format!("bitstreams: {{valid: [{{name: {BITSTREAM}, boards: [{{board: {BOARD}}}]}}]}}\n");
    std::fs::write(&config, valid).unwrap();

    // The pod wants a kind of board; then its bitstream is valid on that kind only.
    for (kind, args) in
        [(Kind::FpgaOfKind, vec![]), (Kind::FpgaWithoutAffinity, vec!["--config", config.to_str().unwrap()])]
    {
        bed.start_extender(&args).await.unwrap();
        let own = |url: &str| SchedulerConfig::own(url, ground.nodes);
        let seen = observe(&mut bed, own, kind, PODS).await.unwrap();
        println!("own scheduler, {kind:?}: {seen:?}");
        seen.check().unwrap();
        assert!(seen.on_holder > 0, "the best node got none: {seen:?}");
        assert_eq!(seen.most_candidates, ground.boards, "only nodes with boards are named, and all of them");
    }

    // The gate can fail: at its smallest sampling kube-scheduler judges a part of the nodes.
    let sampled = |url: &str| SchedulerConfig::own(url, ground.nodes)?.with("percentageOfNodesToScore", "1");
    let seen = observe(&mut bed, sampled, Kind::FpgaWithoutAffinity, PODS).await.unwrap();
    println!("own scheduler, sampling: {seen:?}");
    assert!(seen.check().is_err() && seen.holder_offered < PODS, "{seen:?}");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_shipped_wiring_every_pod_is_offered_the_node_with_its_bitstream_and_others_pay_nothing() {
    let mut bed = start().await;
    let seen = observe(&mut bed, SchedulerConfig::shipped, Kind::Fpga, PODS).await.unwrap();
    println!("shipped wiring: {seen:?}");
    seen.check().unwrap();
    assert!(seen.on_holder > 0, "the best node got none: {seen:?}");
    // kube-scheduler's own filters reduce the candidates before it calls the extender.
    assert_eq!(seen.most_candidates, bed.ground().boards);

    // The gate can fail: without the node affinity kube-scheduler samples nodes first, and loses the holder for many
    // pods.
    let seen = observe(&mut bed, SchedulerConfig::shipped, Kind::FpgaWithoutAffinity, PODS).await.unwrap();
    println!("shipped wiring, pods without node affinity: {seen:?}");
    assert!(seen.check().is_err() && seen.holder_offered < PODS, "{seen:?}");
    assert_eq!(seen.on_boards, PODS, "{seen:?}");

    // kube-scheduler doesn't call the extender for ordinary pods, and places them without it.
    let url = bed.extender_url("");
    bed.start_scheduler(&SchedulerConfig::shipped(&url).unwrap()).await.unwrap();
    let before = asked(&bed).await;
    assert!(before > 0.0);
    bed.create_pods("ordinary", Kind::Ordinary, PODS).await.unwrap();
    bed.wait_until_placed("ordinary", PODS).await.unwrap();
    assert!(asked(&bed).await <= before, "ordinary pods reached the extender");

    bed.kill_extender().await;
    bed.create_pods("waiting", Kind::Fpga, 5).await.unwrap();
    bed.create_pods("unaware", Kind::Ordinary, PODS).await.unwrap();
    bed.wait_until_placed("unaware", PODS).await.unwrap();
    assert!(bed.failed_attempts("unaware").await.unwrap().is_empty());
    let why = bed.why_pending("waiting").await.unwrap();
    assert!(why.contains("connection refused"), "{why}");
    assert!(bed.placements("waiting").await.unwrap().is_empty());
    bed.start_extender(&[]).await.unwrap();
    bed.wait_until_placed("waiting", 5).await.unwrap();
    assert!(all_on_boards(&bed, "waiting").await);
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_the_label_only_wiring_every_pod_pays_and_a_dead_extender_concerns_all() {
    let mut bed = start().await;
    let seen = observe(&mut bed, SchedulerConfig::label_only, Kind::FpgaByLabel, PODS).await.unwrap();
    println!("label-only wiring: {seen:?}");
    seen.check().unwrap();

    // The price of this wiring: the extender is called for each ordinary pod, with a hundred or more names.
    let seen = observe(&mut bed, SchedulerConfig::label_only, Kind::Ordinary, PODS).await.unwrap();
    println!("label-only wiring, ordinary pods: {seen:?}");
    assert_eq!((seen.asked_once, seen.scored), (PODS, PODS), "{seen:?}");
    assert!(seen.most_candidates >= 100 && seen.failures.is_empty(), "{seen:?}");

    // Dead and ignorable, as shipped: all pods are placed, FPGA pods by their node affinity alone.
    bed.kill_extender().await;
    let label_only = SchedulerConfig::label_only(&bed.extender_url("")).unwrap();
    bed.start_scheduler(&label_only).await.unwrap();
    bed.create_pods("unaware", Kind::Ordinary, PODS).await.unwrap();
    bed.create_pods("affine", Kind::FpgaByLabel, PODS).await.unwrap();
    bed.wait_until_placed("unaware", PODS).await.unwrap();
    bed.wait_until_placed("affine", PODS).await.unwrap();
    assert!(all_on_boards(&bed, "affine").await);

    // Dead and not ignorable: no pod in the cluster is placed.
    bed.start_scheduler(&label_only.with("ignorable", "false").unwrap()).await.unwrap();
    bed.create_pods("blocked", Kind::Ordinary, PODS).await.unwrap();
    let why = bed.why_pending("blocked").await.unwrap();
    assert!(why.contains("connection refused"), "{why}");
    assert!(bed.placements("blocked").await.unwrap().is_empty());
    bed.start_extender(&[]).await.unwrap();
    bed.wait_until_placed("blocked", PODS).await.unwrap();
    bed.stop().await;
}
