//! A real kube-scheduler calls the real extender: where pods are placed, and the behaviour under faults.
//!
//! The tests write the nodes' annotations, so that every placement is predictable.

use fpga_tests::testbed::cluster::{
    BoardSpec, Cluster, ClusterSpec, CollectorChoice, ExtenderAway, NodeCache,
};
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::wait;
use fpga_tests::testbed::workload::Workload;
use k8s_openapi::api::core::v1::{Event, Node};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const NODES: [&str; 3] = ["n1", "n2", "n3"];

struct Bed {
    cluster: Cluster,
    seq: u64,
}

/// The state that a test publishes for a node.
#[derive(Clone, Copy, Default)]
struct State {
    usage: u64,
    reconfiguration: u64,
    loaded: Option<&'static str>,
    board: Option<&'static str>,
    reconfigured: Reconfigured,
}

/// The part of a board that a reconfiguration replaces.
#[derive(Clone, Copy, Default)]
enum Reconfigured {
    /// One of its four slots.
    #[default]
    Slot,
    /// The whole board, which has one slot.
    Board,
}

impl State {
    fn used(usage: u64) -> Self {
        Self { usage, ..Self::default() }
    }

    fn loaded(self, name: &'static str) -> Self {
        Self { loaded: Some(name), ..self }
    }

    fn json(self, seq: u64) -> Value {
        let bitstream = |name: &&str| {
            let first = name.as_bytes().first().unwrap();
            json!({"name": name, "digest": format!("{first:02x}").repeat(16), "lastUsedAgoMs": 10})
        };
        let bitstreams: Vec<Value> = self.loaded.iter().map(bitstream).collect();
        let board = self.board.unwrap_or("emulated");
        // No slice has more usage than its time.
        let (slots, part, slices) = match self.reconfigured {
            Reconfigured::Slot => (4, "slot", vec![self.usage]),
            Reconfigured::Board => (1, "board", vec![self.usage / 30; 30]),
        };
        json!({
            "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 60_000, "windowMs": 300_000,
            "measuredAtMs": Timestamp::now().as_millisecond(),
            "usageMs": self.usage, "reconfigurationMs": self.reconfiguration,
            "devices": [{
                "id": "dm0", "vendor": "none", "platform": "p", "board": board, "shell": "1.0", "slots": slots, "reconfiguredPart": part,
                "loaded": if self.loaded.is_some() { vec![0] } else { vec![] },
                "usageMs": self.usage, "reconfigurationMs": self.reconfiguration, "queued": 0, "healthy": true,
            }],
            "bitstreams": bitstreams,
            "window": {"bucketMs": 10_000, "usageMs": slices, "reconfigurationMs": [self.reconfiguration]},
            "truncated": 0,
        })
    }
}

impl Bed {
    async fn start(weights: &str, extender_args: &[&str]) -> Self {
        let board = |name| BoardSpec { collector: CollectorChoice::None, ..BoardSpec::new(name, None) };
        let spec = ClusterSpec {
            boards: NODES.into_iter().map(board).collect(),
            weights: weights.to_owned(),
            node_cache: NodeCache::Capable,
            extender_away: ExtenderAway::Wait,
            // Score by measurements only; herd.rs tests expected usage.
            extender_args: ["--anti-herd", "off"]
                .iter()
                .chain(extender_args)
                .map(|arg| (*arg).to_owned())
                .collect(),
        };
        let cluster = Cluster::start(spec).await.unwrap();
        Self { cluster, seq: 0 }
    }

    /// Publishes the states of the three nodes as their collectors would, and waits until the extender knows them.
    async fn publish(&mut self, states: [State; 3]) {
        self.seq += 1;
        for (node, state) in NODES.into_iter().zip(states) {
            self.cluster.annotate(node, &state.json(self.seq).to_string()).await.unwrap();
        }
        wait::until("the extender to know the states", async || {
            let nodes = self.cluster.extender_nodes().await?;
            let known = nodes.iter().filter(|node| node["known"]["state"]["seq"] == self.seq);
            Ok((known.count() == NODES.len()).then_some(()))
        })
        .await
        .unwrap();
    }

    async fn place(&self, name: &str, bitstreams: &str) -> String {
        self.cluster.create(&sleeper(name).bitstreams(bitstreams)).await.unwrap();
        self.cluster.node_of(name).await.unwrap()
    }

    /// Waits until an event says with these words why the pod isn't placed.
    async fn until_pending_because(&self, pod: &str, because: &str) {
        let events: Api<Event> = Api::default_namespaced(self.cluster.plane().client().clone());
        let of_pod =
            ListParams::default().fields(&format!("involvedObject.name={pod},reason=FailedScheduling"));
        let look = async || {
            let told: Vec<_> =
                events.list(&of_pod).await?.items.into_iter().filter_map(|it| it.message).collect();
            anyhow::ensure!(told.iter().any(|message| message.contains(because)), "events tell {told:?}");
            Ok(Some(()))
        };
        wait::until(&format!("an event about {pod}: {because}"), look).await.unwrap();
        assert_eq!(self.cluster.pods().get(pod).await.unwrap().spec.unwrap().node_name, None);
    }

    async fn metric(&self, name: &str) -> f64 {
        self.cluster.http().get(&self.cluster.extender_url("/metrics")).await.unwrap().metric(name)
    }
}

fn sleeper(name: &str) -> Workload {
    Workload::accelerated(name, ["sleep", "1000"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_go_where_the_numbers_say_with_node_names_and_with_full_nodes() {
    let mut bed = Bed::start("1-2-2", &[]).await;

    // The nodes differ only in usage.
    bed.publish([State::used(9_000), State::used(1_000), State::used(5_000)]).await;
    assert_eq!(bed.place("by-usage", "sobel").await, "n2");
    // Another usage leads to another node.
    bed.publish([State::used(1_000), State::used(9_000), State::used(5_000)]).await;
    assert_eq!(bed.place("by-new-usage", "sobel").await, "n1");
    // At equal usage the node with the bitstream wins.
    let equal = State::used(5_000);
    bed.publish([equal, equal, equal.loaded("sobel")]).await;
    assert_eq!(bed.place("by-locality", "sobel").await, "n3");
    // With the weights 1-2-2, low usage wins over locality.
    bed.publish([State::used(9_000).loaded("sobel"), State::used(5_000), State::used(0)]).await;
    assert_eq!(bed.place("idle-wins", "sobel").await, "n3");
    // Reconfiguration time counts like usage.
    let busy = |reconfiguration| State { reconfiguration, usage: 5_000, ..State::default() };
    bed.publish([busy(800), busy(20), busy(300)]).await;
    assert_eq!(bed.place("by-reconfiguration", "sobel").await, "n2");
    // kube-scheduler sends whole nodes instead of their names.
    bed.cluster.reconfigure_scheduler(NodeCache::FullNodes, ExtenderAway::Wait).await.unwrap();
    bed.publish([State::used(1_000), State::used(9_000), State::used(5_000)]).await;
    assert_eq!(bed.place("with-full-nodes", "sobel").await, "n1");

    let url = bed.cluster.extender_url("/explain/default/by-usage");
    let explained = bed.cluster.http().get(&url).await.unwrap().json().unwrap();
    let scored = explained["prioritize"]["nodes"].as_array().unwrap();
    assert_eq!(scored.len(), NODES.len(), "{explained}");
    let best = scored.iter().max_by_key(|node| node["score"].as_u64()).unwrap();
    assert_eq!(best["node"], "n2", "{explained}");
    // kube-scheduler logs a failed prioritize call only at V(5), and continues without the scores.
    let log = bed.cluster.plane().scheduler_log();
    assert!(!log.contains("Failed to run extender's priority function"), "a prioritize call failed");
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_a_board_that_fits_will_do() {
    let mut bed = Bed::start("1-2-2", &[]).await;
    let other = State { board: Some("alveo"), ..State::used(9_000) };
    bed.publish([State::used(0), State::used(0), other]).await;
    bed.cluster.create(&sleeper("picky").requires("board", "alveo")).await.unwrap();
    assert_eq!(bed.cluster.node_of("picky").await.unwrap(), "n3");

    bed.cluster.create(&sleeper("impossible").requires("board", "nobody-has-it")).await.unwrap();
    bed.until_pending_because("impossible", "0/3 nodes are available").await;
    // When a node gets the board, its annotation wakes the pod.
    bed.publish([State::used(0), State { board: Some("nobody-has-it"), ..State::used(0) }, other]).await;
    assert_eq!(bed.cluster.node_of("impossible").await.unwrap(), "n2");
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preemption_evicts_only_where_the_board_fits() {
    let mut bed = Bed::start("1-2-2", &[]).await;
    let classes: Api<PriorityClass> = Api::all(bed.cluster.plane().client().clone());
    let high = json!({"metadata": {"name": "high"}, "value": 1000});
    classes.create(&PostParams::default(), &serde_json::from_value(high).unwrap()).await.unwrap();
    let special = State { board: Some("alveo"), ..State::used(0) };
    bed.publish([State::used(0), State::used(0), special]).await;
    // Every node is full of pods without priority.
    let mut low = BTreeMap::new();
    for pod in ["low-1", "low-2", "low-3"] {
        bed.cluster.create(&sleeper(pod).cpu("60")).await.unwrap();
        low.insert(bed.cluster.node_of(pod).await.unwrap(), pod);
    }
    assert_eq!(low.len(), NODES.len());

    // By kube-scheduler's own filters any node could be preempted, but only one has the board.
    let important = sleeper("important").requires("board", "alveo").cpu("60").priority_class("high");
    bed.cluster.create(&important).await.unwrap();
    assert_eq!(bed.cluster.node_of("important").await.unwrap(), "n3");
    for (node, pod) in low {
        // kube-scheduler gives the board on when the evicted pod has ended; the API server can still have the pod then.
        let pod = bed.cluster.pods().get_opt(pod).await.unwrap();
        let evicted = pod.is_none_or(|pod| pod.metadata.deletion_timestamp.is_some());
        assert_eq!(evicted, node == "n3", "{node}");
    }
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_extender_is_what_the_configuration_says_and_recovers() {
    let mut bed = Bed::start("1-2-2", &[]).await;
    bed.publish([State::used(9_000), State::used(1_000), State::used(5_000)]).await;
    bed.cluster.kill_extender().await;

    // ignorable: false. FPGA pods wait, with an event that says why; other pods are not affected.
    bed.cluster.create(&sleeper("waits")).await.unwrap();
    bed.until_pending_because("waits", "connection refused").await;
    bed.cluster.create(&Workload::ordinary("ordinary", ["sleep", "1000"])).await.unwrap();
    bed.cluster.node_of("ordinary").await.unwrap();
    // When the extender is back, the pod is tried again and placed by its measurements.
    bed.cluster.start_extender().await.unwrap();
    bed.publish([State::used(9_000), State::used(1_000), State::used(5_000)]).await;
    assert_eq!(bed.cluster.node_of("waits").await.unwrap(), "n2");

    // ignorable: true. FPGA pods are placed without the extender.
    bed.cluster.reconfigure_scheduler(NodeCache::Capable, ExtenderAway::Ignore).await.unwrap();
    bed.cluster.kill_extender().await;
    bed.cluster.create(&sleeper("placed-all-the-same")).await.unwrap();
    bed.cluster.node_of("placed-all-the-same").await.unwrap();
    bed.cluster.start_extender().await.unwrap();
    bed.publish([State::used(1_000), State::used(9_000), State::used(5_000)]).await;
    bed.cluster.delete("waits").await.unwrap();
    assert_eq!(bed.place("with-it-again", "sobel").await, "n1");
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn garbage_is_answered_and_counted() {
    let mut bed = Bed::start("1-2-2", &["--max-body-bytes", "1000000"]).await;
    bed.publish([State::used(9_000), State::used(1_000), State::used(5_000)]).await;
    let http = bed.cluster.http().clone();

    for verb in ["/filter", "/prioritize", "/preempt"] {
        let url = bed.cluster.extender_url(verb);
        for body in ["", "{", "[1,2]", "{\"Pod\": 7}"] {
            let answer = http.post(&url, body).await.unwrap();
            assert_eq!(answer.status.as_u16(), 400, "{verb} {body:?}: {}", answer.text());
            assert!(!answer.body.is_empty(), "{verb} {body:?} without a reason");
        }
        let answer = http.post(&url, vec![b' '; 1_000_001]).await.unwrap();
        assert_eq!(answer.status.as_u16(), 413, "{verb}: {}", answer.text());
    }

    assert!(bed.metric("fpga_extender_errors_total").await >= 15.0);

    // A node whose annotation is garbage is never the best, however idle it was before.
    let unreadable = "fpga_extender_unreadable_states_total";
    let before = bed.metric(unreadable).await;
    for garbage in ["not JSON", "{}", "{\"v\":99}", "[]", &"x".repeat(100_000)] {
        bed.cluster.annotate("n2", garbage).await.unwrap();
    }
    wait::until("the extender to count the garbage", async || {
        Ok((bed.metric(unreadable).await > before).then_some(()))
    })
    .await
    .unwrap();
    assert_eq!(bed.place("not-there", "sobel").await, "n3");
    bed.cluster.check_running().unwrap();
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_board_is_taken_from_others_only_if_their_load_fits_elsewhere_and_the_pod_is_told_what_it_waits_for()
 {
    let mut bed = Bed::start("1-2-2", &[]).await;
    let whole = |loaded: &'static str, percent: u64| State {
        reconfigured: Reconfigured::Board,
        ..State::used(3_000 * percent).loaded(loaded)
    };
    bed.publish([whole("mm", 60), whole("mm", 50), whole("fft", 10)]).await;
    bed.cluster.create(&sleeper("taker").bitstreams("sobel")).await.unwrap();
    bed.until_pending_because("taker", "the load fits on no other device that has it").await;
    let explained = bed.cluster.extender_url("/explain/default/taker");
    let explained = bed.cluster.http().get(&explained).await.unwrap().text();
    assert_eq!(explained.matches("notRedistributable").count(), NODES.len(), "{explained}");

    // The other board with mm has time for the load of each now, so that either can be taken, and fft's can not.
    bed.publish([whole("mm", 40), whole("mm", 50), whole("fft", 10)]).await;
    assert_eq!(bed.cluster.node_of("taker").await.unwrap(), "n1");
    // Where the wanted one is, nobody else's board is considered.
    bed.publish([whole("mm", 40), whole("mm", 40), whole("sobel", 95)]).await;
    assert_eq!(bed.place("follower", "sobel").await, "n3");
    bed.cluster.check_running().unwrap();
    bed.cluster.stop().await;
}

/// A Bitstream for boards of this name.
fn bitstream(namespace: &str, name: &str, board: &str, allowed: &str) -> Value {
    json!({
        "apiVersion": "fpga-scheduling.io/v1alpha1",
        "kind": "Bitstream",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "allowedNamespaces": {"from": allowed},
            "variants": [{
                "vendor": "none", "board": board, "shell": "1.0", "bytes": 1,
                "digest": format!("sha256:{}", "0a".repeat(32)),
                "source": {"https": "https://files.example/bitstream"},
            }],
        },
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_goes_where_the_bitstream_that_its_namespace_means_is_valid() {
    let mut bed = Bed::start("1-2-2", &["--library-namespace", "kube-fpga"]).await;
    let on = |board: &'static str, usage: u64| State { board: Some(board), ..State::used(usage) };
    let states = [on("a10", 9_000), on("s10", 5_000), on("u250", 0)];
    bed.publish(states).await;
    // Without the library names are valid everywhere.
    assert_eq!(bed.place("before", "sobel").await, "n3");

    let plane = bed.cluster.plane();
    let definitions = repository().join("manifests/chart/custom-resources");
    kubectl(plane, &["apply", "--server-side", "-f", definitions.to_str().unwrap()]).await.unwrap();
    kubectl(plane, &["create", "namespace", "other"]).await.unwrap();
    let file = plane.run_dir().path().join("bitstream.json");
    let apply = async |bitstream: Value| {
        std::fs::write(&file, bitstream.to_string()).unwrap();
        let apply = ["apply", "--server-side", "-f", file.to_str().unwrap()];
        wait::until("the API server to take a Bitstream", async || kubectl(plane, &apply).await.map(Some))
            .await
            .unwrap();
    };
    apply(bitstream("kube-fpga", "sobel", "a10", "All")).await;
    apply(bitstream("kube-fpga", "mm", "a10", "All")).await;
    apply(bitstream("kube-fpga", "secret", "a10", "Same")).await;
    apply(bitstream("default", "mm", "s10", "Same")).await;
    apply(bitstream("other", "sobel", "u250", "All")).await;
    let mut selected = bitstream("kube-fpga", "selected", "s10", "Selector");
    selected["spec"]["allowedNamespaces"]["selector"] = json!({"matchLabels": {"boards": "yes"}});
    apply(selected).await;
    // An extender that runs would look in 30 s for a resource that was not served; one that starts looks at once.
    let log = plane.run_dir().log("fpga-scheduler-extender");
    bed.cluster.kill_extender().await;
    bed.cluster.start_extender().await.unwrap();
    wait::until("the extender to know the Bitstreams", async || {
        Ok(std::fs::read_to_string(&log)?.contains("Bitstreams listed").then_some(()))
    })
    .await
    .unwrap();

    // n3 is idle, but the bitstreams are not valid there.
    assert_eq!(bed.place("by-library", "sobel").await, "n1");
    assert_eq!(bed.place("by-own", "mm").await, "n2");
    assert_eq!(bed.place("by-namespace", "kube-fpga/mm").await, "n1");
    assert_eq!(bed.place("by-other", "other/sobel").await, "n3");
    assert_eq!(bed.place("unlisted", "fft").await, "n3");
    bed.cluster.create(&sleeper("refused").bitstreams("secret")).await.unwrap();
    bed.until_pending_because("refused", "bitstream is not valid on the FPGA device").await;

    // A Bitstream that changes lets a waiting pod in.
    let mut open = bitstream("kube-fpga", "secret", "s10", "All");
    open["spec"]["variants"][0]["digest"] = json!(format!("sha256:{}", "0b".repeat(32)));
    let plane = bed.cluster.plane();
    std::fs::write(&file, open.to_string()).unwrap();
    kubectl(plane, &["apply", "--server-side", "-f", file.to_str().unwrap()]).await.unwrap();
    assert_eq!(bed.cluster.node_of("refused").await.unwrap(), "n2");

    // So does a namespace that gets the label that a Bitstream wants.
    bed.cluster.create(&sleeper("unlabelled").bitstreams("selected")).await.unwrap();
    bed.until_pending_because("unlabelled", "bitstream is not valid on the FPGA device").await;
    kubectl(bed.cluster.plane(), &["label", "namespace", "default", "boards=yes"]).await.unwrap();
    assert_eq!(bed.cluster.node_of("unlabelled").await.unwrap(), "n2");
    bed.cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_that_waits_for_a_bitstream_is_placed_when_it_comes_without_any_other_event() {
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "bitstreams: {unlisted: reject}\n").unwrap();
    let args = ["--library-namespace", "kube-fpga", "--config", config.path().to_str().unwrap()];
    let mut bed = Bed::start("1-2-2", &args).await;
    let definitions = repository().join("manifests/chart/custom-resources");
    let apply = ["apply", "--server-side", "-f", definitions.to_str().unwrap()];
    kubectl(bed.cluster.plane(), &apply).await.unwrap();
    // An extender that starts looks at once for what the API server serves.
    bed.cluster.kill_extender().await;
    bed.cluster.start_extender().await.unwrap();
    let on = |board: &'static str| State { board: Some(board), ..State::used(1_000) };
    bed.publish([on("a10"), on("s10"), on("u250")]).await;
    bed.cluster.create(&sleeper("early").bitstreams("sobel")).await.unwrap();
    bed.until_pending_because("early", "bitstream is not valid on the FPGA device").await;

    let plane = bed.cluster.plane();
    let file = plane.run_dir().path().join("bitstream.json");
    std::fs::write(&file, bitstream("default", "sobel", "s10", "Same").to_string()).unwrap();
    kubectl(plane, &["apply", "--server-side", "-f", file.to_str().unwrap()]).await.unwrap();
    assert_eq!(bed.cluster.node_of("early").await.unwrap(), "n2");

    // One node has the version, whose value stays where nothing changes.
    let nodes: Api<Node> = Api::all(bed.cluster.plane().client().clone());
    let versions = async || -> Vec<(String, String)> {
        let nodes = nodes.list(&ListParams::default()).await.unwrap().items.into_iter();
        let version = |node: &Node| node.annotations().get("fpga-scheduling.io/library-version").cloned();
        nodes.filter_map(|node| Some((node.name_any(), version(&node)?))).collect()
    };
    // It is written half a second after the change.
    let written = async || Ok(Some(versions().await).filter(|versions| !versions.is_empty()));
    let before = wait::until("a version to be written", written).await.unwrap();
    assert!(matches!(before.as_slice(), [(node, _)] if node == "n1"), "{before:?}");
    bed.cluster.kill_extender().await;
    bed.cluster.start_extender().await.unwrap();
    let mut other = bitstream("default", "fft", "s10", "Same");
    other["spec"]["variants"][0]["bytes"] = json!(2);
    std::fs::write(&file, other.to_string()).unwrap();
    kubectl(bed.cluster.plane(), &["apply", "--server-side", "-f", file.to_str().unwrap()]).await.unwrap();
    wait::until("the new extender to write the next version", async || {
        Ok((versions().await != before).then_some(()))
    })
    .await
    .unwrap();
    let hash = |versions: &[(String, String)]| versions[0].1.split('.').next().unwrap().to_owned();
    let after = versions().await;
    assert_ne!(hash(&after), hash(&before), "the new extender has not written the old version again");
    let metrics = bed.cluster.http().get(&bed.cluster.extender_url("/metrics")).await.unwrap();
    assert!(metrics.metric("fpga_extender_library_versions_written_total") < 1.5);
    bed.cluster.stop().await;
}
