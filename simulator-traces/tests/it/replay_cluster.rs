//! Runs `fpga-sim replay-cluster` on the recording of a live extender.
use bytes::Bytes;
use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_core::units::{MonotonicTime, WallTime};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::{Clock, Moment};
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::metrics::Verb;
use fpga_scheduler_extender::record::Recorder;
use fpga_scheduler_extender::verbs;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Output};

/// Records an extender that scores by locality alone, and asks it `asked` times for a node for a pod that uses
/// `sobel`. Node `busy` has used `sobel` and has a high usage; node `idle` has neither.
fn record(file: &Path, asked: u32) {
    let clock = Clock::new(|| Moment { now: MonotonicTime(10_000), wall: WallTime(1_760_000_000_000) });
    let rules = DecisionRules {
        weights: "1-0-0".parse().unwrap(),
        anti_herd: AntiHerd::Off,
        ..DecisionRules::default()
    };
    let mut app = App::new(rules, clock.clone());
    app.recorder = Some(Recorder::start(file.to_owned(), 1 << 30, clock, &mut app.registry).unwrap());
    let nodes = [("busy", 20_000, vec![json!({ "name": "sobel", "lastUsedAgoMs": 0 })]), ("idle", 0, vec![])];
    for (name, usage, bitstreams) in nodes {
        let state = json!({
            "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 60_000, "measuredAtMs": 1, "windowMs": 300_000,
            "usageMs": usage, "reconfigurationMs": 0, "bitstreams": bitstreams,
            "devices": [{ "id": "dm0", "vendor": "intel", "slots": 2, "healthy": true }],
            "window": { "bucketMs": 10_000, "usageMs": [usage], "reconfigurationMs": [] },
        });
        let mut node =
            ObjectMeta { name: Some(name.to_owned()), uid: Some(name.to_owned()), ..ObjectMeta::default() };
        app.index.apply(node.clone(), Shown::Listed, app.clock.read());
        node.annotations = Some([("fpga-scheduling.io/node-state".to_owned(), state.to_string())].into());
        app.index.apply(node, Shown::Changed, app.clock.read());
    }
    app.index.listed(&["busy", "idle"].map(str::to_owned).into());
    for pod in 0..asked {
        let request = json!({ "NodeNames": ["busy", "idle"], "Pod": { "metadata": {
            "name": format!("p{pod}"), "namespace": "default", "uid": format!("u{pod}"),
            "annotations": { "fpga-scheduling.io/bitstreams": "sobel" },
        }}})
        .to_string();
        let request = Bytes::from(request);
        for verb in [Verb::Filter, Verb::Prioritize] {
            verbs::answer(&app, verb, &request).unwrap();
        }
    }
    // Dropping the app writes the recording to its end.
    drop(app);
}

fn replay(file: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fpga-sim"))
        .args(["replay-cluster", "--format", "json", "--recording"])
        .arg(file)
        .args(args)
        .env_clear()
        .output()
        .unwrap()
}

fn outcome(file: &Path, args: &[&str]) -> Value {
    let output = replay(file, args);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn other_weights_show_where_pods_would_have_gone() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("decisions.jsonl");
    record(&file, 3);

    let same = outcome(&file, &[]);
    assert_eq!(same["metrics"]["decisions"], 3.0, "filters are no choices: {same}");
    assert_eq!(same["metrics"]["decisions_with_other_scores"], 0.0);
    assert_eq!(same["tables"][0]["rows"], json!([["busy", "3.0", "3.0"]]));

    let other = outcome(&file, &["--weights", "0-1-0"]);
    assert_eq!(other["metrics"]["decisions_with_other_best_nodes"], 3.0, "{other}");
    assert_eq!(other["tables"][0]["rows"], json!([["busy", "3.0", "0.0"], ["idle", "0.0", "3.0"]]));

    // Without weights all scores are equal.
    let equal = outcome(&file, &["--weights", "0-0-0"]);
    assert_eq!(equal["tables"][0]["rows"], json!([["busy", "3.0", "1.5"], ["idle", "0.0", "1.5"]]));
}

#[test]
fn a_line_that_is_none_is_told_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("decisions.jsonl");
    record(&file, 1);
    let lines = std::fs::read_to_string(&file).unwrap().lines().count();
    let text = std::fs::read_to_string(&file).unwrap() + "{\"decision\":\n";
    std::fs::write(&file, text).unwrap();
    let output = replay(&file, &[]);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && error.contains(&format!("line {}", lines + 1)), "{error}");
}
