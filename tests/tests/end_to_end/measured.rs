//! From the work of boards to the placement of pods, with real collectors on a real API server, kube-scheduler and
//! extender: by the stream alone, and for pods that wait until a board can take them.

use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::collectors::{Collectors, Health};
use fpga_tests::testbed::scale::nodes::{Advertised, Ground, name};
use fpga_tests::testbed::scale::pods::Kind;
use fpga_tests::testbed::wait;
use kube::api::PostParams;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Nodes without labels: only their collectors say that they have boards.
const GROUND: Ground =
    Ground { nodes: 2, boards: 0, wanted: 0, pods_per_node: 110, advertised: Advertised::No };

/// Starts extender and scheduler. The extender scores by measurements only; herd.rs tests expected usage.
async fn start(extender_args: &[&str]) -> ScaleBed {
    let mut bed = ScaleBed::start(GROUND).await.unwrap();
    bed.start_extender(&[&["--anti-herd", "off"], extender_args].concat()).await.unwrap();
    bed.start_scheduler(&SchedulerConfig::shipped(&bed.extender_url("")).unwrap()).await.unwrap();
    bed
}

async fn place(bed: &ScaleBed, batch: &str) -> String {
    bed.create_pods(batch, Kind::FpgaWithoutAffinity, 1).await.unwrap();
    bed.wait_until_placed(batch, 1).await.unwrap();
    bed.placements(batch).await.unwrap().remove(&format!("{batch}-0")).unwrap()
}

/// A heartbeat that wakes no pod in a test. Without a wake-up kube-scheduler tries again after 5 minutes, which is longer than a
/// test waits.
const RARELY: [&str; 2] = ["--heartbeat", "10m"];

/// Waits until the only pod of the batch is placed; it must be on this node.
async fn assert_bound(bed: &ScaleBed, batch: &str, node: &str) {
    bed.wait_until_placed(batch, 1).await.unwrap();
    assert_eq!(bed.placements(batch).await.unwrap()[&format!("{batch}-0")], node);
}

/// Writes a configuration in which the pods' bitstream is valid on this board only.
fn list(config: &Path, board: &str) {
    let text = format!("bitstreams: {{valid: [{{name: sobel, boards: [{{board: {board}}}]}}]}}\n");
    std::fs::write(config, text).unwrap();
}

/// Creates a pod that requires a loaded bitstream.
async fn create_pod_that_wants_loaded(bed: &ScaleBed, batch: &str, bitstream: &str) {
    let mut pod = Kind::FpgaWithoutAffinity.pod(batch, 0);
    pod["metadata"]["annotations"] = json!({"fpga-scheduling.io/loaded-bitstreams": bitstream});
    bed.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
}

fn has_healthy_board(known: &Value) -> bool {
    known["known"]["state"]["devices"][0]["healthy"] == true
}

fn has_unhealthy_board(known: &Value) -> bool {
    known["known"]["state"]["devices"][0]["healthy"] == false
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_ends_sends_the_next_pod_elsewhere_by_the_stream_alone() {
    let bed = start(&[]).await;
    // After the boards' own annotations, no annotation is due within this test.
    let rarely = [&["--min-write-interval", "10m"], &RARELY[..]].concat();
    let collectors = Collectors::start(&bed, 2, &[bed.stream_url(0)], &rarely).await.unwrap();
    collectors.have_boards().await.unwrap();
    for collector in &collectors.all {
        let streamed = |known: &Value| has_healthy_board(known) && known["source"] == "stream";
        bed.wait_until_known(&collector.node, "streamed", streamed).await.unwrap();
    }
    // Both nodes have used the bitstream of the pods: they are equal in locality.
    for collector in &collectors.all {
        collector.end_task(Duration::from_millis(1)).await.unwrap();
        let local = |known: &Value| known["known"]["state"]["bitstreams"][0]["name"] == "sobel";
        bed.wait_until_known(&collector.node, "known for its bitstream", local).await.unwrap();
    }
    // In each turn the other node has done more.
    for (turn, busier) in [(1, 0), (2, 1), (3, 0)] {
        let task = Duration::from_secs(turn);
        collectors.all[busier].end_task(task).await.unwrap();
        let node = &collectors.all[busier].node;
        let used = |known: &Value| known["known"]["state"]["usageMs"].as_u64() >= Some(1_000 * turn);
        bed.wait_until_known(node, "used", used).await.unwrap();
        assert_eq!(place(&bed, &format!("turn-{turn}")).await, name(1 - busier));
    }
    collectors.kill().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_without_a_healthy_board_waits_until_one_is_healthy_again_or_added() {
    let bed = start(&[]).await;
    let hurry = [&["--min-write-interval", "1s"], &RARELY[..]].concat();
    let collectors = Collectors::start(&bed, 2, &[], &hurry).await.unwrap();
    let [first, second] = &collectors.all[..] else { unreachable!("two were started") };

    // No node has a board; then one is added.
    bed.create_pods("before", Kind::FpgaWithoutAffinity, 1).await.unwrap();
    let why = bed.why_pending("before").await.unwrap();
    assert!(why.contains("no FPGA device") || why.contains("no FPGA label"), "{why}");
    first.board("a10", Health::Healthy).await.unwrap();
    assert_bound(&bed, "before", &first.node).await;

    // The board is unhealthy, and the pod's event says so; then the board is healthy again.
    first.board("a10", Health::Unhealthy).await.unwrap();
    bed.wait_until_known(&first.node, "unhealthy", has_unhealthy_board).await.unwrap();
    bed.create_pods("during", Kind::FpgaWithoutAffinity, 1).await.unwrap();
    let why = bed.why_pending("during").await.unwrap();
    assert!(why.contains("FPGA device is unhealthy"), "{why}");
    first.board("a10", Health::Healthy).await.unwrap();
    assert_bound(&bed, "during", &first.node).await;

    // A board is added elsewhere while the first one is unhealthy.
    first.board("a10", Health::Unhealthy).await.unwrap();
    bed.wait_until_known(&first.node, "unhealthy", has_unhealthy_board).await.unwrap();
    bed.create_pods("after", Kind::FpgaWithoutAffinity, 1).await.unwrap();
    bed.why_pending("after").await.unwrap();
    second.board("a10", Health::Healthy).await.unwrap();
    assert_bound(&bed, "after", &second.node).await;
    collectors.kill().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_until_its_bitstream_is_valid_somewhere_or_loaded_where_it_must_be() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("extender.yaml");
    list(&config, "s10");
    let bed = start(&["--config", config.to_str().unwrap()]).await;
    let collectors = Collectors::start(&bed, 2, &[], &RARELY).await.unwrap();
    let [first, second] = &collectors.all[..] else { unreachable!("two were started") };

    // The only board is not listed for the bitstream; then a listed board is added.
    first.board("a10", Health::Healthy).await.unwrap();
    bed.wait_until_known(&first.node, "healthy", has_healthy_board).await.unwrap();
    bed.create_pods("unlisted", Kind::FpgaWithoutAffinity, 1).await.unwrap();
    let why = bed.why_pending("unlisted").await.unwrap();
    assert!(why.contains("bitstream is not valid on the FPGA device"), "{why}");
    second.board("s10", Health::Healthy).await.unwrap();
    assert_bound(&bed, "unlisted", &second.node).await;

    // The listed board becomes another board, and then itself again.
    second.board("a10", Health::Healthy).await.unwrap();
    let is_a10 = |known: &Value| known["known"]["state"]["devices"][0]["board"] == "a10";
    bed.wait_until_known(&second.node, "an a10", is_a10).await.unwrap();
    bed.create_pods("changed", Kind::FpgaWithoutAffinity, 1).await.unwrap();
    bed.why_pending("changed").await.unwrap();
    second.board("s10", Health::Healthy).await.unwrap();
    assert_bound(&bed, "changed", &second.node).await;

    // The required bitstream is loaded.
    create_pod_that_wants_loaded(&bed, "loaded", "mm").await;
    let why = bed.why_pending("loaded").await.unwrap();
    assert!(why.contains("has not loaded the bitstream"), "{why}");
    first.board_with("a10", Health::Healthy, &["mm"]).await.unwrap();
    assert_bound(&bed, "loaded", &first.node).await;
    collectors.kill().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bitstream_that_the_administrator_lists_lets_waiting_pods_in_with_the_next_annotation() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("extender.yaml");
    list(&config, "s10");
    let bed = start(&["--config", config.to_str().unwrap()]).await;
    let hurry = [&["--min-write-interval", "1s"], &RARELY[..]].concat();
    let collectors = Collectors::start(&bed, 1, &[], &hurry).await.unwrap();
    let only = &collectors.all[0];
    only.board("a10", Health::Healthy).await.unwrap();
    bed.wait_until_known(&only.node, "healthy", has_healthy_board).await.unwrap();
    bed.create_pods("listed", Kind::FpgaWithoutAffinity, 1).await.unwrap();
    let why = bed.why_pending("listed").await.unwrap();
    assert!(why.contains("bitstream is not valid on the FPGA device"), "{why}");

    // A file changes no API object: kube-scheduler tries again when a node's annotation is written, which happens
    // within a heartbeat.
    list(&config, "a10");
    wait::until("the list to be in force", async || {
        let taken = r#"fpga_extender_config_changes_total{outcome="taken"} 1"#;
        let metrics = bed.http().get(&bed.extender_url("/metrics")).await?.text();
        Ok(metrics.contains(taken).then_some(()))
    })
    .await
    .unwrap();
    only.end_task(Duration::from_secs(30)).await.unwrap();
    assert_bound(&bed, "listed", &only.node).await;
    collectors.kill().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_waits_for_a_node_that_is_fresh_again_where_others_are_excluded() {
    let bed = start(&["--stale-usage", "exclude"]).await;
    // A state is stale after three heartbeats without an update.
    let short = ["--min-write-interval", "1s", "--heartbeat", "1s"];
    let collectors = Collectors::start(&bed, 1, &[], &short).await.unwrap();
    collectors.have_boards().await.unwrap();
    let node = collectors.all[0].node.clone();
    bed.wait_until_known(&node, "healthy", has_healthy_board).await.unwrap();
    collectors.kill().await;
    bed.wait_until_known(&node, "stale", |known| known["freshness"] == "stale").await.unwrap();
    bed.create_pods("waiting", Kind::FpgaWithoutAffinity, 1).await.unwrap();
    let why = bed.why_pending("waiting").await.unwrap();
    assert!(why.contains("not fresh"), "{why}");
    // The collector returns, as after a reboot, with the window in its annotation.
    let collectors = Collectors::start(&bed, 1, &[], &[]).await.unwrap();
    collectors.have_boards().await.unwrap();
    bed.wait_until_placed("waiting", 1).await.unwrap();
    collectors.kill().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_a_single_node_nobody_is_asked_to_prioritize() {
    let mut bed =
        ScaleBed::start(Ground { nodes: 1, boards: 1, wanted: 1, ..Ground::of_the_gate() }).await.unwrap();
    bed.start_extender(&[]).await.unwrap();
    bed.start_scheduler(&SchedulerConfig::shipped(&bed.extender_url("")).unwrap()).await.unwrap();
    bed.create_pods("alone", Kind::Fpga, 20).await.unwrap();
    bed.wait_until_placed("alone", 20).await.unwrap();
    wait::until("the calls to be counted", async || {
        Ok((bed.metric("fpga_extender_single_node_filters_total").await? > 19.5).then_some(()))
    })
    .await
    .unwrap();
    let metrics = bed.http().get(&bed.extender_url("/metrics")).await.unwrap().text();
    let prioritized = metrics
        .lines()
        .filter(|line| line.starts_with("fpga_extender_request_duration_seconds_count"))
        .filter(|line| line.contains("prioritize") && !line.ends_with(" 0"));
    assert_eq!(prioritized.count(), 0, "{metrics}");
    bed.stop().await;
}
