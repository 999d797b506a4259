//! fpga-registry on a real control plane with controllers, kube-scheduler and extender: one of two replicas works, what
//! it counts is right, and whom it moves and whom it leaves alone.

use anyhow::{Context as _, Result};
use fpga_core::moved_off::MOVED_OFF_ANNOTATION;
use fpga_core::names::BOARDS_ANNOTATION;
use fpga_core::node_state::ANNOTATION;
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::node::{Node, NodeSpec};
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::registry::{self, Registry, records};
use fpga_tests::testbed::{extender, programs, restricted, wait};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const NODES: [&str; 2] = ["n1", "n2"];

/// A control plane with two nodes, a board `dm0` on each, and the Deployment `sobel`.
struct Bed {
    plane: ControlPlane,
    http: HttpClient,
    nodes: Vec<Node>,
    extender: Process,
    sequence: AtomicU64,
}

#[derive(Clone, Copy)]
enum Board {
    There,
    Lost,
    /// Another pod waits to have it reconfigured as a whole, as the node plugin says.
    Wanted,
}

impl Bed {
    async fn start() -> Self {
        let mut plane = ControlPlane::start(&NODES).await.unwrap();
        registry::install(&plane).await.unwrap();
        let http = HttpClient::new(Duration::from_secs(10));
        let mut nodes = Vec::new();
        for (index, name) in (0..).zip(NODES) {
            let spec = NodeSpec {
                name: name.into(),
                labels: [("fpga-scheduling.io/fpga-vendor".to_owned(), "intel".to_owned())].into(),
                network: plane.network().node(index),
                env: BTreeMap::new(),
                pods_dir: plane.run_dir().path().join("pods"),
            };
            let client = plane.client_of(&Identity::Node(name.into())).await.unwrap();
            nodes.push(Node::start(spec, client).await.unwrap());
        }
        for node in &nodes {
            node.wait_ready(LONG).await.unwrap();
        }
        let extender = extender::start(&plane, &http, &[]).await.unwrap();
        let config = SchedulerConfig::shipped(&extender::url(&plane, "")).unwrap();
        plane.start_scheduler(&config).await.unwrap();
        let bed = Self { plane, http, nodes, extender, sequence: AtomicU64::new(1) };
        for node in NODES {
            bed.publish(node, Board::There).await;
        }
        bed
    }

    fn client(&self) -> &Client {
        self.plane.client()
    }

    fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client().clone())
    }

    fn deployments(&self) -> Api<Deployment> {
        Api::default_namespaced(self.client().clone())
    }

    /// Writes the state of a node as its collector would.
    async fn publish(&self, node: &str, board: Board) {
        let seq = self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut state = json!({
            "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 3_600_000, "measuredAtMs": 5, "windowMs": 300_000,
            "usageMs": 0, "reconfigurationMs": 0, "window": {"bucketMs": 10_000},
            "devices": [{"id": "dm0", "vendor": "intel", "board": "a10", "shell": "1.2", "slots": 4, "loaded": [0],
                         "healthy": !matches!(board, Board::Lost)}],
            "bitstreams": [{"name": "sobel", "digest": "0a".repeat(16), "lastUsedAgoMs": 0}],
        });
        if let Board::Wanted = board {
            state["plugin"] = json!({"boards": {"dm0": [2, 2]}, "wanted": {"dm0": "the-pod-that-waits"}});
        }
        let nodes: Api<KubeNode> = Api::all(self.client().clone());
        let patch = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": node, "annotations": {ANNOTATION: state.to_string()}},
        });
        let params = PatchParams::apply("fpga-collector").force();
        nodes.patch(node, &params, &Patch::Apply(&patch)).await.unwrap();
    }

    /// A Deployment of pods that ask for a board; `script` is what they run.
    fn deployment(name: &str, replicas: u32, container: &Value) -> Deployment {
        let mut container = container.clone();
        container["name"] = json!("main");
        container["image"] = json!("local");
        container["resources"] = json!({"limits": {"fpga-scheduling.io/accelerated": 1}});
        serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
                "template": {
                    "metadata": {"labels": {"app": name},
                                 "annotations": {"fpga-scheduling.io/bitstreams": "sobel"}},
                    "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
                },
            },
        }))
        .unwrap()
    }

    async fn create(&self, name: &str, replicas: u32) {
        let container = json!({"command": ["/bin/sh", "-c", "exec sleep 3600"]});
        let deployment = Self::deployment(name, replicas, &container);
        self.deployments().create(&PostParams::default(), &deployment).await.unwrap();
        self.until_ready(name, replicas as usize).await;
    }

    /// The pods of a Deployment that are Ready and stay.
    async fn ready(&self, name: &str) -> Result<Vec<Pod>> {
        let pods = self.pods().list(&ListParams::default().labels(&format!("app={name}"))).await?;
        let stays = |pod: &Pod| restricted::is_ready(pod) && pod.metadata.deletion_timestamp.is_none();
        Ok(pods.items.into_iter().filter(stays).collect())
    }

    async fn until_ready(&self, name: &str, count: usize) -> Vec<Pod> {
        let what = format!("{count} Ready pods of {name}");
        let ready = wait::until(&what, LONG, async || {
            let ready = self.ready(name).await?;
            let pods = ready.iter().map(|pod| (pod.name_any(), node_of(pod))).collect::<Vec<_>>();
            (ready.len() == count).then_some(Some(ready)).with_context(|| format!("{pods:?}"))
        });
        match ready.await {
            Ok(pods) => pods,
            Err(error) => {
                let said = kubectl(&self.plane, &["get", "pods,events,configmaps", "-A"]).await;
                panic!("{error:#}\n{}", said.unwrap_or_default())
            }
        }
    }

    /// Gives a pod of the Deployment the board of its node, as the node plugin does, and takes the board away.
    async fn lose_board_of(&self, name: &str) -> Pod {
        let pod = self.ready(name).await.unwrap().remove(0);
        self.give_board(&pod).await;
        self.publish(&node_of(&pod), Board::Lost).await;
        pod
    }

    async fn give_board(&self, pod: &Pod) {
        let patch = json!({"metadata": {"annotations": {BOARDS_ANNOTATION: "dm0"}}});
        let patch = Patch::Merge(&patch);
        self.pods().patch(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// A registry of short grace, without a cool-down unless `args` have one.
    async fn registry(&self, name: &str, mode: &str, args: &[&str]) -> Registry {
        let cool_down: &[&str] =
            if args.contains(&"--moves-cool-down") { &[] } else { &["--moves-cool-down", "0"] };
        let args = [&["--moves", mode, "--board-grace", "500ms"], cool_down, args].concat();
        Registry::start(&self.plane, &self.http, name, &args).await.unwrap()
    }

    /// Waits until a record, or a pod that stays, is as `is_it` says.
    async fn until_recorded(&self, key: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = wait::until(what, LONG, async || {
            let all = records(self.client(), key).await?;
            let found = all.iter().find(|record| is_it(record)).cloned();
            found.map(Some).with_context(|| format!("{key} has {}", json!(all)))
        });
        found.await.unwrap()
    }

    async fn moved(&self) -> Vec<Value> {
        records(self.client(), "moves.json").await.unwrap()
    }

    async fn is_there(&self, pod: &Pod) -> bool {
        let found = self.pods().get_opt(&pod.name_any()).await.unwrap();
        found.is_some_and(|found| found.uid() == pod.uid() && found.metadata.deletion_timestamp.is_none())
    }

    /// Waits until the registry has looked for moves once more: a further pod that stays is written into the records.
    async fn until_looked_again(&self, marker: &str) {
        let pod = json!({
            "metadata": {"name": marker, "annotations": {BOARDS_ANNOTATION: "gone"}},
            "spec": {"terminationGracePeriodSeconds": 1, "nodeName": "n1", "containers": [
                {"name": "main", "image": "local", "command": ["/bin/sh", "-c", "exec sleep 3600"],
                 "resources": {"limits": {"fpga-scheduling.io/accelerated": 1}}},
            ]},
        });
        self.pods().create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        self.until_recorded("held.json", "the bare pod to stay", |held| held["pod"] == marker).await;
    }

    async fn stop(self) {
        self.extender.stop(LONG).await;
        for node in self.nodes {
            node.stop().await;
        }
        self.plane.stop().await;
    }
}

fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

fn other(node: &str) -> &'static str {
    if node == NODES[0] { NODES[1] } else { NODES[0] }
}

fn outcome_is(outcome: &str) -> impl Fn(&Value) -> bool {
    move |record| record["outcome"] == outcome
}

fn bitstream() -> DynamicObject {
    serde_json::from_value(json!({
        "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream", "metadata": {"name": "sobel"},
        "spec": {"variants": [{
            "vendor": "intel", "board": "a10", "shell": "1.2", "bytes": 1,
            "digest": format!("sha256:{}", "0a".repeat(32)), "source": {"https": "https://files.example/x"},
        }]},
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_registries_one_writes_the_counts_and_the_other_goes_on_when_it_is_killed() {
    let bed = Bed::start().await;
    let resource = ApiResource {
        group: "fpga-scheduling.io".into(),
        version: "v1alpha1".into(),
        api_version: "fpga-scheduling.io/v1alpha1".into(),
        kind: "Bitstream".into(),
        plural: "bitstreams".into(),
    };
    let bitstreams: Api<DynamicObject> = Api::default_namespaced_with(bed.client().clone(), &resource);
    bitstreams.create(&PostParams::default(), &bitstream()).await.unwrap();
    bed.create("sobel", 2).await;
    let first = bed.registry("registry-1", "off", &[]).await;
    let leads = async |registry: &Registry| {
        let led = async || {
            let leads = registry.metric(&bed.http, "fpga_registry_leads").await?;
            Ok((leads > 0.0).then_some(()))
        };
        wait::until("the registry to lead", LONG, led).await.unwrap();
    };
    leads(&first).await;
    let second = bed.registry("registry-2", "off", &[]).await;
    let counted = async |nodes: i64, resident: i64, pods: i64| {
        let counts = json!([nodes, resident, pods]);
        let look = async || {
            let status = bitstreams.get("sobel").await?.data["status"].clone();
            let found = json!([status["validNodes"], status["residentNodes"], status["pods"]]);
            let text = status.to_string();
            (found == counts).then_some(Some(status)).context(text)
        };
        wait::until("the counts", LONG, look).await.unwrap()
    };
    let status = counted(2, 2, 2).await;
    assert_eq!(status["conditions"][0]["type"], "Available");
    assert_eq!(
        (&status["conditions"][0]["status"], &status["conditions"][0]["observedGeneration"]),
        (&json!("True"), &json!(1))
    );
    let version = async || bitstreams.get("sobel").await.unwrap().resource_version();
    let before = version().await;
    assert!(second.metric(&bed.http, "fpga_registry_status_writes_total").await.unwrap() < 1.0);

    first.process().kill().await;
    leads(&second).await;
    assert_eq!(version().await, before, "what has not changed is not written");
    let scale = json!({"spec": {"replicas": 3}});
    bed.deployments().patch("sobel", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    counted(2, 2, 3).await;
    assert!(second.metric(&bed.http, "fpga_registry_status_writes_total").await.unwrap() > 0.0);

    // A replica that is told to end gives the lease back, and does not wait for it to be abandoned.
    let third = bed.registry("registry-3", "off", &[]).await;
    assert!(second.process().stop(LONG).await.success());
    leads(&third).await;
    let user = |args: &[&str]| {
        let mut command = std::process::Command::new(programs::built("kubectl-fpga").unwrap());
        command.args(args).env_clear().env("KUBECONFIG", bed.plane.kubeconfig(&Identity::Admin).unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    for (command, words) in [
        ("bitstreams", ["default", "sobel", "2", "3"]),
        ("boards", ["n1", "dm0", "intel/a10/1.2", "healthy"]),
        ("functions", ["default", "ReplicaSet/sobel-", "3/3", "sobel"]),
        ("moves", ["AGE", "WORKLOAD", "CAUSE", "RECKONING"]),
    ] {
        bed.until_ready("sobel", 3).await;
        let text = user(&[command]);
        assert!(words.iter().all(|word| text.contains(word)), "{command}: {text}");
    }
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn by_default_a_move_is_suggested_on_the_deployment_and_no_pod_goes() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let _registry = bed.registry("registry", "suggest", &["--moves-cool-down", "1h"]).await;
    let pod = bed.lose_board_of("sobel").await;
    let record = bed.until_recorded("moves.json", "a suggestion", outcome_is("suggested")).await;
    assert_eq!((&record["pod"], &record["cause"]), (&json!(pod.name_any()), &json!("board_lost")));
    assert!(record["reckoning"].as_str().unwrap().contains("its board dm0 has been lost"), "{record}");
    let events: Api<Event> = Api::default_namespaced(bed.client().clone());
    let event = wait::until("the event", LONG, async || {
        let events = events.list(&ListParams::default()).await?;
        Ok(events.into_iter().find(|event| event.reason.as_deref() == Some("MoveSuggested")))
    });
    let event = event.await.unwrap();
    let regarding = event.regarding.unwrap();
    assert_eq!((regarding.kind.as_deref(), regarding.name.as_deref()), (Some("Deployment"), Some("sobel")));
    assert!(event.note.unwrap().contains(&pod.name_any()));
    bed.until_looked_again("marker").await;
    assert!(bed.is_there(&pod).await);
    assert_eq!(bed.moved().await.len(), 1, "it is suggested once per cool-down");
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_moved_off_a_board_that_another_one_waits_for() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let _registry = bed.registry("registry", "evict", &[]).await;
    let pod = bed.ready("sobel").await.unwrap().remove(0);
    bed.give_board(&pod).await;
    bed.publish(&node_of(&pod), Board::Wanted).await;
    let record = bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert_eq!((&record["podUid"], &record["cause"]), (&json!(pod.uid()), &json!("board_wanted")));
    assert!(!bed.is_there(&pod).await);
    let ready = bed.until_ready("sobel", 2).await;
    assert!(ready.iter().all(|ready| ready.uid() != pod.uid()));
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pod_is_moved_when_its_budget_allows_and_does_not_come_back() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    let budget = ["create", "poddisruptionbudget", "all-stay", "--selector=app=sobel", "--min-available=2"];
    kubectl(&bed.plane, &budget).await.unwrap();
    let _registry = bed.registry("registry", "evict", &[]).await;
    let pod = bed.lose_board_of("sobel").await;
    let node = node_of(&pod);
    let held = bed.until_recorded("held.json", "the budget to hold it", |_| true).await;
    assert_eq!(held["reason"], "the PodDisruptionBudget all-stay forbids it");
    assert!(bed.is_there(&pod).await && bed.moved().await.is_empty());

    kubectl(&bed.plane, &["delete", "poddisruptionbudget", "all-stay"]).await.unwrap();
    let record = bed.until_recorded("moves.json", "the move to end", outcome_is("ended")).await;
    assert_eq!((&record["podUid"], &record["node"]), (&json!(pod.uid()), &json!(node)));
    assert!(!bed.is_there(&pod).await);
    assert_eq!(bed.moved().await.len(), 1);
    let nodes: Api<KubeNode> = Api::all(bed.client().clone());
    let marks = nodes.get(&node).await.unwrap().annotations()[MOVED_OFF_ANNOTATION].clone();
    let controller = pod.metadata.owner_references.as_ref().unwrap()[0].uid.clone();
    assert!(marks.contains(&format!("default/{controller}")), "{marks}");

    // The board is back, and the other node's is lost: the workload is still kept off.
    bed.publish(&node, Board::There).await;
    bed.publish(other(&node), Board::Lost).await;
    let scale = json!({"spec": {"replicas": 3}});
    bed.deployments().patch("sobel", &PatchParams::default(), &Patch::Merge(&scale)).await.unwrap();
    let events: Api<Event> = Api::default_namespaced(bed.client().clone());
    let refused = wait::until("kube-scheduler's reason", LONG, async || {
        let events = events.list(&ListParams::default()).await?;
        let notes = events.into_iter().filter_map(|event| event.note);
        Ok(notes.into_iter().find(|note| note.contains("moved this workload off the node")))
    });
    assert!(refused.await.unwrap().contains("FPGA device is unhealthy"));
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_are_left_alone_and_a_replacement_that_never_becomes_ready_ends_the_moves() {
    let bed = Bed::start().await;
    bed.create("sobel", 2).await;
    bed.create("mm", 3).await;
    let registry = bed.registry("registry", "evict", &["--moves-per-hour", "2"]).await;
    // A new version that never becomes Ready: its port is declared, and nobody listens.
    let stuck = json!({"command": ["/bin/sh", "-c", "exec sleep 3600"], "ports": [{"containerPort": 9999}]});
    let rolled = Bed::deployment("sobel", 2, &stuck);
    bed.deployments().patch("sobel", &PatchParams::default(), &Patch::Merge(&rolled)).await.unwrap();
    wait::until("the rollout to begin", LONG, async || {
        let pods = bed.pods().list(&ListParams::default().labels("app=sobel")).await?;
        Ok((pods.items.len() == 3).then_some(()))
    })
    .await
    .unwrap();
    let pod = bed.lose_board_of("sobel").await;
    let held = bed.until_recorded("held.json", "the rollout to hold it", |_| true).await;
    assert_eq!(held["reason"], "the Deployment is rolling out");
    assert!(bed.is_there(&pod).await && bed.moved().await.is_empty());

    // The pods of the other Deployment have the lost board, too. One goes; its replacement has nowhere to become Ready.
    bed.publish(other(&node_of(&pod)), Board::Lost).await;
    for pod in bed.ready("mm").await.unwrap() {
        bed.give_board(&pod).await;
    }
    bed.until_recorded("moves.json", "a move of the other", |record| record["workload"] == "mm").await;
    let waits = |held: &Value| held["reason"] == "the last move of the Deployment has not ended";
    bed.until_recorded("held.json", "the second pod to stay", waits).await;
    bed.until_looked_again("marker").await;
    let moves = bed.moved().await;
    assert_eq!((moves.len(), &moves[0]["outcome"]), (1, &json!("evicted")));
    assert_eq!(bed.ready("mm").await.unwrap().len(), 2);
    let mm = bed.deployments().get("mm").await.unwrap();
    assert_eq!(mm.spec.unwrap().replicas, Some(3), "nobody has changed the number of replicas");
    registry.process().check_running().unwrap();
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_registry_that_is_killed_again_and_again_loses_no_pod_and_spends_no_more_than_its_hour() {
    let bed = Bed::start().await;
    for name in ["a", "b", "c"] {
        bed.create(name, 2).await;
    }
    for name in ["a", "b", "c"] {
        for pod in bed.ready(name).await.unwrap() {
            bed.give_board(&pod).await;
        }
    }
    let args = ["--moves-per-hour", "2", "--moves-per-interval", "3"];
    bed.publish("n1", Board::Lost).await;
    // One name, as a container has that starts again in its pod, so that nobody waits for the lease. The pauses differ, so
    // that the end comes at different steps.
    for attempt in 0..16_u64 {
        let registry = bed.registry("registry", "evict", &args).await;
        tokio::time::sleep(Duration::from_millis(500 + 130 * (attempt % 7))).await;
        registry.process().kill().await;
        let workloads: Vec<String> =
            bed.moved().await.iter().map(|record| record["workload"].as_str().unwrap().to_owned()).collect();
        assert!(workloads.len() <= 2, "{workloads:?}");
        for name in ["a", "b", "c"] {
            assert!(!bed.ready(name).await.unwrap().is_empty(), "{name} has no Ready pod");
        }
    }
    let _registry = bed.registry("registry", "evict", &args).await;
    for name in ["a", "b", "c"] {
        bed.until_ready(name, 2).await;
    }
    bed.until_recorded("moves.json", "the moves to end", outcome_is("ended")).await;
    wait::until("all moves to end", LONG, async || {
        let moves = records(bed.client(), "moves.json").await?;
        moves.iter().all(outcome_is("ended")).then_some(Some(())).with_context(|| json!(moves).to_string())
    })
    .await
    .unwrap();
    let moves = bed.moved().await;
    let evicted: std::collections::BTreeSet<&str> =
        moves.iter().map(|record| record["podUid"].as_str().unwrap()).collect();
    assert_eq!(evicted.len(), moves.len(), "no pod is moved twice");
    bed.stop().await;
}
