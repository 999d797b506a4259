//! The operators' tools on a real control plane: the kubectl plugin, and recordings.

use fpga_test_kit::patience;
use fpga_tests::testbed::cluster::{
    BoardSpec, Cluster, ClusterSpec, CollectorChoice, ExtenderAway, NodeCache,
};
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::workload::Workload;
use fpga_tests::testbed::{programs, wait};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

struct Bed {
    cluster: Cluster,
    dir: TempDir,
    seq: u64,
}

impl Bed {
    async fn start() -> Self {
        let dir = TempDir::new().unwrap();
        let board = |name| BoardSpec { collector: CollectorChoice::None, ..BoardSpec::new(name, None) };
        let recording = dir.path().join("decisions.jsonl").display().to_string();
        let spec = ClusterSpec {
            boards: NODES.into_iter().map(board).collect(),
            weights: "1-2-2".to_owned(),
            node_cache: NodeCache::Capable,
            extender_away: ExtenderAway::Wait,
            extender_args: vec!["--record".to_owned(), recording],
        };
        Self { cluster: Cluster::start(spec).await.unwrap(), dir, seq: 0 }
    }

    /// Publishes the nodes' usage as their collectors would, and waits until the extender knows it.
    async fn publish(&mut self, usage: [u64; 3]) {
        self.seq += 1;
        for (node, usage) in NODES.into_iter().zip(usage) {
            // The newest slices first, each with at most as much as four slots can do in it.
            let slices: Vec<u64> =
                (0..=usage / 40_000).map(|slice| (usage - slice * 40_000).min(40_000)).collect();
            let state = json!({
                "v": 1, "boot": 1, "seq": self.seq, "heartbeatMs": 60_000, "windowMs": 300_000,
                "measuredAtMs": Timestamp::now().as_millisecond(), "usageMs": usage, "reconfigurationMs": 0,
                "devices": [{"id": "dm0", "vendor": "none", "board": "emulated", "shell": "1.0", "slots": 4, "loaded": [0],
                    "usageMs": usage, "queued": 0, "healthy": true}],
                "bitstreams": [{"name": "sobel", "lastUsedAgoMs": 10}],
                "window": {"bucketMs": 10_000, "usageMs": slices, "reconfigurationMs": []},
            });
            self.cluster.annotate(node, &state.to_string()).await.unwrap();
        }
        self.wait_for("the extender to know the states", |nodes| {
            let known = nodes.iter().filter(|node| node["known"]["state"]["seq"] == self.seq);
            known.count() == NODES.len()
        })
        .await;
    }

    async fn wait_for(&self, what: &str, is: impl Fn(&[Value]) -> bool) {
        wait::until(what, async || Ok(is(&self.cluster.extender_nodes().await?).then_some(())))
            .await
            .unwrap();
    }

    async fn place(&self, name: &str) -> String {
        let pod = Workload::accelerated(name, ["sleep", "1000"]).bitstreams("sobel");
        self.cluster.create(&pod).await.unwrap();
        self.cluster.node_of(name).await.unwrap()
    }

    /// Success and output of `kubectl fpga`; kubectl itself finds the plugin.
    async fn kubectl(&self, args: &[&str]) -> (bool, String) {
        let output = self.command(args).output().await.unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.success(), text)
    }

    fn command(&self, args: &[&str]) -> Command {
        let plugin = programs::built("kubectl-fpga").unwrap();
        let path = format!("{}:{}", plugin.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(self.cluster.plane().kubectl());
        command
            .arg("fpga")
            .args(args)
            .env("PATH", path)
            .env("KUBECONFIG", self.cluster.plane().kubeconfig(&Identity::Admin).unwrap())
            .env("FPGA_EXTENDER", self.cluster.extender_url(""));
        command
    }

    /// `top --watch` shows a change at its next update, and exits with success after Ctrl-C.
    async fn top_follows_what_boards_do(&mut self) {
        let mut top = self
            .command(&["top", "--by", "node", "--count", "1", "--watch=1"])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
        let mut until = async |node: &str| {
            let look = async {
                while let Some(line) = lines.next_line().await.unwrap() {
                    assert!(!line.contains('\x1b'), "no screen to clear where no terminal is: {line:?}");
                    if line.starts_with(node) {
                        return;
                    }
                }
                panic!("it ended before {node} was the busiest");
            };
            tokio::time::timeout(patience(), look).await.unwrap();
        };
        until("n2 ").await;
        self.publish([1_000, 2_000, 900_000]).await;
        until("n3 ").await;
        let id = i32::try_from(top.id().unwrap()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGINT).unwrap();
        let status = tokio::time::timeout(patience(), top.wait()).await.unwrap().unwrap();
        assert!(status.success(), "{status}");
        self.publish([1_000, 900_000, 600_000]).await;
    }

    /// The shipped configuration with the given texts replaced.
    fn scheduler_config(&self, changes: &[(&str, &str)]) -> PathBuf {
        let shipped = programs::repository().join("scheduler-config/kube-scheduler.yaml");
        let mut text = std::fs::read_to_string(shipped).unwrap();
        for (from, to) in changes {
            assert!(text.contains(from), "{from}");
            text = text.replace(from, to);
        }
        let path = self.dir.path().join("scheduler.yaml");
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Creates device managers that may use all memory of their nodes, a policy that no binding brings into force, and a
    /// pod of which only an init container asks for a board.
    async fn install_wrongly(&self) {
        let client = || self.cluster.plane().client().clone();
        let params = PostParams::default();
        let labels = json!({"app.kubernetes.io/name": "fpga-device-manager"});
        let container = json!({"name": "c", "image": "none"});
        let managers = serde_json::from_value(json!({
            "metadata": {"name": "fpga-device-manager-a10", "labels": labels},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
            },
        }));
        Api::<DaemonSet>::namespaced(client(), "kube-fpga")
            .create(&params, &managers.unwrap())
            .await
            .unwrap();
        let policy = serde_json::from_value(json!({
            "metadata": {"name": "kube-fpga-own-node", "labels": {"app.kubernetes.io/part-of": "kube-fpga"}},
            "spec": {
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"],
                }]},
                "validations": [{"expression": "true"}],
            },
        }));
        Api::<ValidatingAdmissionPolicy>::all(client()).create(&params, &policy.unwrap()).await.unwrap();
        let board = json!({"limits": {"fpga-scheduling.io/accelerated": "1"}});
        let pod = serde_json::from_value(json!({
            "metadata": {"name": "init-only"},
            "spec": {
                "schedulerName": "nobody",
                "initContainers": [{"name": "i", "image": "none", "resources": board}],
                "containers": [container],
            },
        }));
        Api::<Pod>::default_namespaced(client()).create(&params, &pod.unwrap()).await.unwrap();
    }

    /// The doctor's findings, and whether it reports success.
    async fn doctor(&self, config: &Path) -> (bool, Vec<Value>) {
        let config = config.display().to_string();
        let (well, text) = self.kubectl(&["doctor", "-o", "json", "--scheduler-config", &config]).await;
        let findings = serde_json::from_str::<Vec<Value>>(&text);
        (well, findings.unwrap_or_else(|error| panic!("{error}: {text}")))
    }
}

fn of_severity<'f>(findings: &'f [Value], severity: &str) -> Vec<&'f str> {
    let bad = findings.iter().filter(|finding| finding["severity"] == severity);
    bad.map(|finding| finding["check"].as_str().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_scheduler_was_told_is_explained_diagnosed_and_decided_again() {
    let mut bed = Bed::start().await;
    bed.publish([900_000, 1_000, 600_000]).await;
    assert_eq!(bed.place("first").await, "n2");
    bed.publish([1_000, 900_000, 600_000]).await;
    let second = bed.place("second").await;
    assert_eq!(second, "n1");

    // The reasons for the placement.
    let (well, text) = bed.kubectl(&["explain", "default/second"]).await;
    assert!(well, "{text}");
    for part in [
        "bitstreams sobel",
        "3 of 3 nodes passed",
        "→  n1",
        "RECONFIGURATION×2",
        "watched",
        "The pod is on n1: one of our best.",
    ] {
        assert!(text.contains(part), "{text}\nhas no {part}");
    }
    assert!(!text.contains('\x1b'), "no colours where no terminal is");
    let (well, text) = bed.kubectl(&["explain", "nobody"]).await;
    assert!(!well && text.contains("There is no such pod"), "{text}");

    // The boards' work.
    let (well, text) = bed.kubectl(&["nodes"]).await;
    let busy = text.lines().find(|line| line.starts_with("n2 ")).unwrap_or_default();
    assert!(
        well && busy.contains("none/emulated/1.0") && busy.contains("75%") && busy.contains("sobel"),
        "{text}"
    );
    let (well, text) = bed.kubectl(&["top", "--by", "node", "--count", "1"]).await;
    assert!(well && text.lines().count() == 2 && text.lines().nth(1).unwrap().starts_with("n2 "), "{text}");

    // The pool's broker is looked for in the cluster, which has none.
    let (well, text) = bed.kubectl(&["pool"]).await;
    assert!(!well && text.contains("no fpga-pool runs in the namespace kube-fpga"), "{text}");
    assert!(text.contains("pool.enabled of the chart") && text.contains("--broker URL"), "{text}");

    bed.top_follows_what_boards_do().await;

    // A healthy cluster, with the extender's address in the configuration.
    let (as_shipped, here) = ("http://127.0.0.1:9461", bed.cluster.extender_url(""));
    let (well, findings) = bed.doctor(&bed.scheduler_config(&[(as_shipped, &here)])).await;
    assert!(well && of_severity(&findings, "problem").is_empty(), "{findings:#?}");
    // The only warning is about the single replica.
    assert_eq!(of_severity(&findings, "warning"), ["replicas"], "{findings:#?}");
    assert_eq!(of_severity(&findings, "unknown"), [""; 0], "{findings:#?}");

    // The configured URL leads to no extender, which doctor reports.
    let (_, findings) = bed.doctor(&bed.scheduler_config(&[])).await;
    assert_eq!(of_severity(&findings, "unknown"), ["reach"], "{findings:#?}");

    // kube-scheduler serves another scheduler name than the pods have, so no scheduler handles them.
    let profile = ("\nextenders:", "\nprofiles: [{schedulerName: kube-fpga}]\nextenders:");
    let (well, findings) = bed.doctor(&bed.scheduler_config(&[(as_shipped, &here), profile])).await;
    assert!(!well);
    assert_eq!(of_severity(&findings, "problem"), ["scheduler name"], "{findings:#?}");
    let finding = findings.iter().find(|finding| finding["check"] == "scheduler name").unwrap();
    let (what, mend) = (finding["what"].as_str().unwrap(), finding["mend"].as_str().unwrap());
    assert!(what.contains("default/first (default-scheduler), default/second (default-scheduler)"), "{what}");
    assert!(mend.contains("`schedulerName: kube-fpga`"), "{mend}");

    // Several faults at the same time.
    bed.cluster.set_weights("4-1-1").await.unwrap();
    bed.cluster.annotate("n3", "garbage").await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(bed.cluster.plane().client().clone());
    bindings.delete("kube-fpga:collector", &DeleteParams::default()).await.unwrap();
    bed.wait_for("the extender to see the garbage", |nodes| {
        nodes.iter().any(|node| node["name"] == "n3" && node["freshness"] == "unreadable")
    })
    .await;
    let broken = [
        ("weight: 10", "weight: 1"),
        ("nodeCacheCapable: true", "nodeCacheCapable: false"),
        ("ignoredByScheduler: true", "ignoredByScheduler: false"),
        ("http://127.0.0.1:9461", "https://127.0.0.1:9461"),
    ];
    bed.install_wrongly().await;
    let (well, findings) = bed.doctor(&bed.scheduler_config(&broken)).await;
    assert!(!well);
    let problems = of_severity(&findings, "problem");
    for check in [
        "weight",
        "tls",
        "managed resource",
        "herd",
        "node states",
        "collectors",
        "rights",
        "node plugins",
        "device managers",
        "policies",
        "pods",
    ] {
        assert!(problems.contains(&check), "{check} is not among {problems:?}: {findings:#?}");
    }
    assert!(of_severity(&findings, "warning").contains(&"cache mode"), "{findings:#?}");
    let mended = findings.iter().filter(|finding| finding["severity"] == "problem");
    assert!(mended.clone().all(|finding| !finding["mend"].as_str().unwrap().is_empty()), "{findings:#?}");

    // Replay repeats the decisions before and after the extender's restart.
    assert!(["n1", "n2"].contains(&bed.place("third").await.as_str()));
    let Bed { cluster, dir, .. } = bed;
    cluster.stop().await;
    let recording = dir.path().join("decisions.jsonl");
    let (older, extender) =
        (recording.with_extension("jsonl.1"), programs::built("fpga-scheduler-extender").unwrap());
    let replay = async |args: &[&str]| {
        let mut command = Command::new(&extender);
        let output = command.arg("replay").args([&older, &recording]).args(args).output().await.unwrap();
        (output.status.success(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (same, text) = replay(&[]).await;
    assert!(same && text.contains(" for 3 pods on 3 nodes ") && text.contains(" 0 otherwise"), "{text}");
    // With weights of 0 all nodes are equal to the extender, so kube-scheduler alone would have decided.
    let (_, text) = replay(&["--weights", "0-0-0"]).await;
    assert!(text.contains("default/second") && text.contains("maybe elsewhere"), "{text}");
}
