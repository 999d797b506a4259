//! Boards out of rotation on a real control plane: `kubectl fpga cordon`, `uncordon` and `drain`, with real collectors, a
//! real kube-scheduler and the extender.

use fpga_core::node_state::{Instances, PluginReport};
use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::SchedulerConfig;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::programs;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::collectors::{Collectors, Health};
use fpga_tests::testbed::scale::nodes::{Advertised, Ground};
use fpga_tests::testbed::scale::pods::Kind;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use serde_json::{Value, json};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

/// Nodes without labels: only their collectors say that they have boards.
const GROUND: Ground =
    Ground { nodes: 2, boards: 0, wanted: 0, pods_per_node: 110, advertised: Advertised::No };
/// A heartbeat that wakes no pod in a test: only a change of rotation does.
const RARELY: [&str; 4] = ["--heartbeat", "10m", "--min-write-interval", "10m"];

async fn start() -> (ScaleBed, Collectors) {
    let mut bed = ScaleBed::start(GROUND).await.unwrap();
    bed.start_extender(&["--anti-herd", "off"]).await.unwrap();
    bed.start_scheduler(&SchedulerConfig::shipped(&bed.extender_url("")).unwrap()).await.unwrap();
    let collectors = Collectors::start(&bed, 2, &[], &RARELY).await.unwrap();
    for collector in &collectors.all {
        collector.board("a10", Health::Healthy).await.unwrap();
        let healthy = |known: &Value| known["known"]["state"]["devices"][0]["healthy"] == true;
        bed.wait_until_known(&collector.node, "healthy", healthy).await.unwrap();
    }
    (bed, collectors)
}

fn command(bed: &ScaleBed, args: &[&str]) -> Command {
    let mut command = Command::new(programs::built("kubectl-fpga").unwrap());
    command
        .args(args)
        .env("KUBECONFIG", bed.plane().kubeconfig(&Identity::Admin).unwrap())
        .env("FPGA_EXTENDER", bed.extender_url(""));
    command
}

/// Success and output of the plugin.
async fn plugin(bed: &ScaleBed, args: &[&str]) -> (bool, String) {
    let output = command(bed, args).output().await.unwrap();
    let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    (output.status.success(), text)
}

/// The output of the plugin, which must succeed.
async fn said(bed: &ScaleBed, args: &[&str]) -> String {
    let (well, text) = plugin(bed, args).await;
    assert!(well, "{args:?}: {text}");
    text
}

/// Waits until the extender knows whether the node's board is in rotation.
async fn known_as(bed: &ScaleBed, node: &str, cordon: Option<&str>) {
    let is_known = |known: &Value| {
        let state = &known["known"]["state"];
        let found = state["cordons"].get("dm0").map(|found| found["reason"].as_str().unwrap_or_default());
        found == cordon && state["devices"][0]["healthy"] == json!(cordon.is_none())
    };
    bed.wait_until_known(node, "in rotation or not", is_known).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn new_pods_go_around_a_cordoned_board_and_wait_with_the_reason_until_one_is_back() {
    let (bed, collectors) = start().await;
    let [first, second] = [0, 1].map(|index| collectors.all[index].node.as_str());
    let (board, other) = (&format!("{first}/dm0"), &format!("{second}/dm0"));

    let (well, text) = plugin(&bed, &["cordon", &format!("{first}/dm7")]).await;
    assert!(!well && text.contains("has no board dm7; it has dm0"), "{text}");
    assert!(said(&bed, &["cordon", board, "--reason", "fan is loud"]).await.contains("cordoned"));
    assert!(said(&bed, &["cordon", board, "--reason", "fan is loud"]).await.contains("already cordoned"));
    known_as(&bed, first, Some("fan is loud")).await;
    bed.create_pods("around", Kind::FpgaWithoutAffinity, 4).await.unwrap();
    bed.wait_until_placed("around", 4).await.unwrap();
    let nodes = bed.placements("around").await.unwrap();
    assert!(nodes.values().all(|node| node == second), "{nodes:?}");

    said(&bed, &["cordon", other]).await;
    known_as(&bed, second, Some("")).await;
    bed.create_pods("waits", Kind::FpgaWithoutAffinity, 1).await.unwrap();
    let why = bed.why_pending("waits").await.unwrap();
    assert!(why.contains("FPGA device is cordoned"), "{why}");
    let explained = said(&bed, &["explain", "default/waits-0"]).await;
    assert!(explained.contains(&format!("{first}: board dm0 is cordoned: fan is loud")), "{explained}");
    let boards = said(&bed, &["boards"]).await;
    assert!(boards.contains("healthy, cordoned: fan is loud"), "{boards}");

    // The board reports that it is well, which brings it back no more than a heartbeat would.
    collectors.all[0].board("a10", Health::Unhealthy).await.unwrap();
    collectors.all[0].board("a10", Health::Healthy).await.unwrap();
    known_as(&bed, first, Some("fan is loud")).await;
    said(&bed, &["uncordon", board]).await;
    bed.wait_until_placed("waits", 1).await.unwrap();
    assert_eq!(bed.placements("waits").await.unwrap()["waits-0"], first);
    assert!(said(&bed, &["uncordon", board]).await.contains("already uncordoned"));
    collectors.kill().await;
    bed.stop().await;
}

/// Makes a pod look as if it ran with the board `dm0`, since no node plugin and no kubelet does.
async fn runs_on_dm0(bed: &ScaleBed, pod: &str) {
    runs(bed, pod).await;
    change(bed, pod, json!({"annotations": {"fpga-scheduling.io/boards": "dm0"}})).await;
}

async fn runs(bed: &ScaleBed, pod: &str) {
    let running = json!({"status": {"phase": "Running"}});
    bed.pods().patch_status(pod, &PatchParams::default(), &Patch::Merge(running)).await.unwrap();
}

async fn change(bed: &ScaleBed, pod: &str, metadata: Value) {
    let change = Patch::Merge(json!({"metadata": metadata}));
    bed.pods().patch(pod, &PatchParams::default(), &change).await.unwrap();
}

/// Deletes the pod once it is about to end, as the kubelet of its node does.
async fn ends(bed: &ScaleBed, pod: &str) {
    let is_ending = |pod: Option<&Pod>| pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_some());
    let ending = await_condition(bed.pods(), pod, is_ending);
    tokio::time::timeout(patience(), ending).await.unwrap().unwrap();
    bed.pods().delete(pod, &DeleteParams::default().grace_period(0)).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_evicts_the_pods_of_its_board_as_budgets_and_bare_pods_allow_and_says_what_is_left() {
    let (bed, collectors) = start().await;
    let [first, second] = [0, 1].map(|index| collectors.all[index].node.as_str());
    let board = &format!("{first}/dm0");
    // All pods are placed on the first node.
    said(&bed, &["cordon", &format!("{second}/dm0")]).await;
    known_as(&bed, second, Some("")).await;
    bed.create_pods("kept", Kind::FpgaWithoutAffinity, 2).await.unwrap();
    bed.wait_until_placed("kept", 2).await.unwrap();
    runs_on_dm0(&bed, "kept-0").await;
    let kept = || async { bed.placements("kept").await.unwrap().into_keys().collect::<Vec<_>>() };

    let text = said(&bed, &["drain", board, "--dry-run"]).await;
    assert!(text.contains("default/kept-0 would be evicted") && !text.contains("kept-1"), "{text}");
    let (well, text) = plugin(&bed, &["drain", board]).await;
    assert!(!well && text.contains("default/kept-0 has no controller"), "{text}");
    assert!(text.contains("stays cordoned and still has"), "{text}");
    assert_eq!(kept().await, ["kept-0", "kept-1"]);
    known_as(&bed, first, Some("drained")).await;

    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(bed.plane().client().clone());
    let budget = json!({"metadata": {"name": "all"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"batch": "kept"}}}});
    budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    let drain = ["drain", board, "--force", "--grace-period", "0", "--drain-timeout"];
    let (well, text) = plugin(&bed, &[&drain[..], &["1s"]].concat()).await;
    assert!(!well && text.contains("default/kept-0 can't be evicted yet"), "{text}");
    assert_eq!(kept().await, ["kept-0", "kept-1"]);

    budgets.delete("all", &DeleteParams::default()).await.unwrap();
    let last = [&drain[..], &["1m"]].concat();
    let (text, ()) = tokio::join!(said(&bed, &last), ends(&bed, "kept-0"));
    assert!(text.contains("default/kept-0 gone") && text.contains(&format!("{board} drained")), "{text}");
    assert_eq!(kept().await, ["kept-1"], "a pod without the board stays");
    known_as(&bed, first, Some("drained")).await;
    collectors.kill().await;
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_waits_for_pods_that_do_not_say_their_board_yet_and_an_error_for_one_pod_ends_nothing() {
    let (bed, collectors) = start().await;
    let [first, second] = [0, 1].map(|index| collectors.all[index].node.as_str());
    let board = &format!("{first}/dm0");
    said(&bed, &["cordon", &format!("{second}/dm0")]).await;
    known_as(&bed, second, Some("")).await;
    bed.create_pods("late", Kind::FpgaWithoutAffinity, 2).await.unwrap();
    bed.wait_until_placed("late", 2).await.unwrap();
    collectors.all[0].device("dm1", "a10", Health::Healthy, &[]).await.unwrap();
    let boards = ["dm0", "dm1"].map(|board| (board.to_owned(), Instances { used: 0, limit: 16 })).into();
    let report = PluginReport { boards, ..PluginReport::default() };
    collectors.all[0].plugin(&report).await.unwrap();
    let reports = |known: &Value| !known["known"]["state"]["plugin"].is_null();
    bed.wait_until_known(first, "with a node plugin", reports).await.unwrap();

    // Two budgets for one pod: the API server answers 500, whatever they allow.
    runs_on_dm0(&bed, "late-0").await;
    runs(&bed, "late-1").await;
    change(&bed, "late-0", json!({"labels": {"budgets": "two"}})).await;
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(bed.plane().client().clone());
    for name in ["one", "two"] {
        let budget = json!({"metadata": {"name": name}, "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"budgets": "two"}}}});
        budgets.create(&PostParams::default(), &serde_json::from_value(budget).unwrap()).await.unwrap();
    }
    let text = said(&bed, &["drain", board, "--dry-run"]).await;
    assert!(text.contains("default/late-0 would be evicted"), "{text}");
    assert!(text.contains("default/late-1 is starting"), "{text}");
    let drain_for = |timeout| ["drain", board, "--force", "--grace-period", "0", "--drain-timeout", timeout];
    let (well, text) = plugin(&bed, &drain_for("1s")).await;
    assert!(!well && text.contains("default/late-1 is starting"), "{text}");

    // The node plugin names the board while a drain is under way.
    let mut drains = command(&bed, &drain_for("1m")).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(drains.stdout.take().unwrap()).lines();
    let mut text = String::new();
    while let Some(line) = lines.next_line().await.unwrap() {
        if line.contains("default/late-1 is starting") {
            change(&bed, "late-1", json!({"annotations": {"fpga-scheduling.io/boards": "dm0"}})).await;
            ends(&bed, "late-1").await;
        }
        if line.contains("default/late-1 gone") {
            for name in ["one", "two"] {
                budgets.delete(name, &DeleteParams::default()).await.unwrap();
            }
            ends(&bed, "late-0").await;
        }
        text = format!("{text}{line}\n");
    }
    assert!(drains.wait().await.unwrap().success() && text.contains("default/late-1 gone"), "{text}");
    assert!(text.contains("default/late-0 can't be evicted yet"), "{text}");
    assert!(text.contains("more than one PodDisruptionBudget"), "{text}");
    assert!(text.contains("default/late-0 gone"), "{text}");
    assert!(text.contains(&format!("{board} drained")), "{text}");
    collectors.kill().await;
    bed.stop().await;
}
