//! Decisions of the service are recorded, and a replay of the file alone has the same results.

use fpga_core::decide::{AntiHerd, DecisionRules};
use fpga_core::expected_load::PlacedPod;
use fpga_core::signals::AskedKind;
use fpga_core::units::{Millis, MonotonicTime, WallTime};
use fpga_scheduler_extender::app::App;
use fpga_scheduler_extender::clock::{Clock, Moment};
use fpga_scheduler_extender::index::Shown;
use fpga_scheduler_extender::metrics::Verb;
use fpga_scheduler_extender::record::Recorder;
use fpga_scheduler_extender::verbs;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

const PLENTY: u64 = 1 << 30;

/// A service that records, with a clock that the test sets.
struct Bed {
    app: App,
    now: Arc<AtomicU64>,
    file: PathBuf,
    dir: TempDir,
    random: u64,
}

impl Bed {
    fn new(rules: DecisionRules, max_bytes: u64) -> Self {
        let dir = TempDir::new().unwrap();
        let file = dir.path().join("decisions.jsonl");
        let now = Arc::new(AtomicU64::new(1_000));
        let clock = {
            let now = Arc::clone(&now);
            Clock::new(move || {
                let now = now.load(Ordering::Relaxed);
                Moment { now: MonotonicTime(now), wall: WallTime(1_760_000_000_000 + now) }
            })
        };
        let mut app = App::new(rules, clock.clone());
        app.recorder = Some(Recorder::start(file.clone(), max_bytes, clock, &mut app.registry).unwrap());
        app.index.listed(&HashSet::new());
        app.expectations.listed(&HashSet::new());
        Self { app, now, file, dir, random: 7 }
    }

    /// A pseudo-random number below `end`, the same in every run.
    fn below(&mut self, end: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % end
    }

    fn later(&mut self, millis: u64) {
        self.now.fetch_add(millis, Ordering::Relaxed);
    }

    /// Changes a node at random: to a state, no state, a state that can't be read, or other labels.
    fn change(&mut self, node: u64, seq: u64) {
        let (kind, usage, bitstream, slots) =
            (self.below(12), self.below(90_000), self.below(3), self.below(4));
        let annotation = match kind {
            0 => None,
            1 => Some("no JSON".to_owned()),
            _ => {
                let state = json!({
                    "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 1_000 * (1 + kind), "measuredAtMs": 1, "windowMs": 300_000,
                    "usageMs": usage, "reconfigurationMs": usage / 7,
                    "devices": [{"id": "dm0", "vendor": "intel", "slots": slots, "loaded": [0], "queued": slots, "healthy": kind != 2}],
                    "bitstreams": [{"name": format!("b{bitstream}"), "lastUsedAgoMs": usage}],
                    "window": {"bucketMs": 10_000, "usageMs": [usage / 3, usage / 2], "reconfigurationMs": [usage / 7]},
                });
                Some(state.to_string())
            }
        };
        let label = (kind != 3).then(|| ("fpga-scheduling.io/fpga-vendor".to_owned(), "intel".to_owned()));
        let node = ObjectMeta {
            name: Some(format!("n{node}")),
            uid: Some(format!("uid-{node}")),
            labels: Some(label.into_iter().collect()),
            annotations: annotation.map(|text| [("fpga-scheduling.io/node-state".to_owned(), text)].into()),
            ..ObjectMeta::default()
        };
        self.app.index.apply(node, Shown::Changed, self.app.clock.read());
    }

    fn ask(&self, verb: Verb, pod: &str, bitstream: u64, nodes: u64) {
        let names: Vec<String> = (0..nodes).map(|node| format!("n{node}")).collect();
        let mut request = json!({"Pod": {
            "metadata": {
                "name": pod, "namespace": "d", "uid": format!("uid-{pod}"),
                "labels": {"team": "hunter2"},
                "annotations": {"fpga-scheduling.io/bitstreams": format!("b{bitstream}"), "note": "hunter2"},
            },
            "spec": {"containers": [{"env": [{"name": "PASSWORD", "value": "hunter2"}]}]},
        }});
        match verb {
            Verb::Preempt => {
                let victims = |name: &String| (name.clone(), json!({"Pods": [{"UID": "v"}]}));
                request["NodeNameToMetaVictims"] = Value::Object(names.iter().map(victims).collect());
            }
            Verb::Filter | Verb::Prioritize => request["NodeNames"] = json!(names),
        }
        verbs::answer(&self.app, verb, &request.to_string().into()).unwrap();
    }

    /// Ends the recording and returns its file.
    fn end(self) -> (PathBuf, TempDir) {
        let Self { app, file, dir, .. } = self;
        drop(app);
        (file, dir)
    }
}

fn replay(files: &[&Path], args: &[&str]) -> (bool, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_fpga-scheduler-extender"))
        .arg("replay")
        .args(files)
        .args(args)
        .env_clear()
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap())
}

#[test]
fn what_the_service_decides_is_decided_again_from_the_file() {
    for anti_herd in [AntiHerd::On, AntiHerd::Off] {
        let mut bed = Bed::new(DecisionRules { anti_herd, ..DecisionRules::default() }, PLENTY);
        for step in 0..150 {
            for _ in 0..3 {
                let node = bed.below(8);
                bed.change(node, step + 1);
            }
            let (bitstream, wait) = (bed.below(3), bed.below(4_000));
            let pod = format!("p{step}");
            // The service knows only eight of the ten candidates.
            for verb in [Verb::Filter, Verb::Prioritize, Verb::Preempt] {
                bed.ask(verb, &pod, bitstream, 10);
            }
            if step % 2 == 0 {
                let node = format!("n{}", bed.below(8));
                let placed = PlacedPod {
                    uid: format!("uid-{pod}"),
                    owner: None,
                    node,
                    kind: AskedKind::ANY,
                    bitstreams: Vec::new(),
                };
                bed.app.expectations.bound(&placed, Millis::ZERO, bed.app.clock.read().now);
                bed.app.expectations.learn(&bed.app.index, bed.app.clock.read().now);
            }
            bed.later(wait);
        }
        let (file, _dir) = bed.end();
        let (same, text) = replay(&[&file], &[]);
        assert!(same && text.starts_with("450 decisions for 150 pods on 10 nodes"), "{text}");
        assert!(text.contains("450 came out as recorded, 0 otherwise"), "{text}");

        let recording = std::fs::read_to_string(&file).unwrap();
        assert!(!recording.contains("hunter2"), "a recording has nothing of a pod but what it asks of us");
        let expects = recording.contains("\"expected\":[{");
        assert_eq!(expects, anti_herd == AntiHerd::On);
        assert!(recording.contains("\"source\":\"watched\""));

        // The replay finds an answer that was changed in the file.
        let last = recording.rfind("\"scores\":[").unwrap() + "\"scores\":[".len();
        let forged = format!("{}1{}", &recording[..last], &recording[last..]);
        std::fs::write(&file, forged).unwrap();
        let (same, text) = replay(&[&file], &[]);
        assert!(!same && text.contains("1 of 450 decisions came out otherwise"), "{text}");
    }
}

#[test]
fn other_weights_show_which_pods_would_have_gone_elsewhere() {
    let mut bed = Bed::new(DecisionRules { anti_herd: AntiHerd::Off, ..DecisionRules::default() }, PLENTY);
    for step in 0..40 {
        for node in 0..8 {
            bed.change(node, step + 1);
        }
        bed.ask(Verb::Filter, &format!("p{step}"), step % 3, 8);
        bed.ask(Verb::Prioritize, &format!("p{step}"), step % 3, 8);
    }
    let (file, _dir) = bed.end();
    let (same, text) = replay(&[&file], &["--weights", "9-1-0", "-o", "json"]);
    assert!(same, "{text}");
    let report: Value = serde_json::from_str(&text).unwrap();
    let pods = report["whatIf"].as_array().unwrap();
    let elsewhere = pods.iter().filter(|pod| pod["verdict"] == "elsewhere").count();
    assert!(pods.len() == 40 && elsewhere > 0 && elsewhere < 40, "{elsewhere} of {}", pods.len());
    let (same, text) = replay(&[&file], &["--weights", "1-2-2"]);
    assert!(same && text.contains("0 would have gone elsewhere and 0 might have"), "{text}");
    let (same, text) = replay(&[&file], &["--pod", "d/p7"]);
    assert!(same && text.starts_with("2 decisions for 1 pods on 8 nodes"), "{text}");
}

#[test]
fn a_full_file_is_put_aside_and_both_stand_alone() {
    const MAX: u64 = 40_000;
    let mut bed = Bed::new(DecisionRules::default(), MAX);
    for step in 0..200 {
        let node = bed.below(8);
        bed.change(node, step + 1);
        bed.ask(Verb::Filter, &format!("p{step}"), 0, 8);
    }
    let (file, _dir) = bed.end();
    let aside = file.with_extension("jsonl.1");
    let size = |path: &Path| std::fs::metadata(path).unwrap().len();
    assert!(size(&file) + size(&aside) <= MAX);
    let count = |files: &[&Path]| {
        let (same, text) = replay(files, &[]);
        assert!(same, "{text}");
        text.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let (older, newer) = (count(&[&aside]), count(&[&file]));
    assert!(older > 0 && newer > 0 && older + newer < 200);
    assert_eq!(count(&[&aside, &file]), older + newer);
}

#[test]
fn what_was_recorded_before_is_put_aside_and_what_is_no_file_is_refused() {
    let bed = Bed::new(DecisionRules::default(), PLENTY);
    bed.ask(Verb::Filter, "before", 0, 1);
    let (file, _dir) = bed.end();
    let clock = Clock::system();
    let mut registry = prometheus_client::registry::Registry::default();
    drop(Recorder::start(file.clone(), PLENTY, clock.clone(), &mut registry).unwrap());
    assert!(replay(&[&file.with_extension("jsonl.1")], &["--pod", "d/before"]).0);
    let (_, text) = replay(&[&file], &[]);
    assert!(text.contains("there is no decision in the recording"), "{text}");
    assert!(Recorder::start("/dev/null".into(), PLENTY, clock, &mut registry).is_err());
}
