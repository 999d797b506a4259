//! A control plane with controllers, kube-scheduler, extender and two nodes with a board each, for fpga-registry.

use anyhow::{Context as _, Result};
use fpga_board::reuse::published::REUSE_ANNOTATION;
use fpga_core::moved_off::MOVED_OFF_ANNOTATION;
use fpga_core::names::BOARDS_ANNOTATION;
use fpga_core::node_state::ANNOTATION;
use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::node::{Node, NodeSpec};
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::registry::{self, Registry, records};
use fpga_tests::testbed::{extender, helm, programs, restricted, wait};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Node as KubeNode, Pod};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

pub const NODES: [&str; 2] = ["n1", "n2"];
/// Whether a replica of a Deployment has failed, as an output of kubectl.
const FAILURE: &str = r#"jsonpath={.status.conditions[?(@.type=="ReplicaFailure")].status}"#;

/// A control plane with two nodes, a board `dm0` on each, and the Deployment `sobel`.
pub struct Bed {
    pub plane: ControlPlane,
    pub http: HttpClient,
    nodes: Vec<Node>,
    extender: Process,
    sequence: AtomicU64,
}

#[derive(Clone, Copy)]
pub enum Board {
    There,
    Lost,
    /// Another pod waits to have it reconfigured as a whole, as the node plugin says.
    Wanted,
}

impl Bed {
    pub async fn start() -> Self {
        Self::start_with(&[]).await
    }

    /// As [`Self::start`], with these arguments of the extender.
    pub async fn start_with(extender_args: &[&str]) -> Self {
        let mut plane = ControlPlane::start(&NODES).await.unwrap();
        registry::install(&plane).await.unwrap();
        let http = HttpClient::new(patience());
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
            node.wait_ready(patience()).await.unwrap();
        }
        let extender = extender::start(&plane, &http, extender_args).await.unwrap();
        let config = SchedulerConfig::shipped(&extender::url(&plane, "")).unwrap();
        plane.start_scheduler(&config).await.unwrap();
        let bed = Self { plane, http, nodes, extender, sequence: AtomicU64::new(1) };
        for node in NODES {
            bed.publish(node, Board::There).await;
        }
        bed
    }

    /// As [`Self::start`], where the chart lets the registry raise numbers of replicas.
    pub async fn start_new_first() -> Self {
        let bed = Self::start().await;
        let settings = ["enabled=true", "moves.mode=evict", "moves.newBeforeOld=true"];
        let settings = settings.map(|setting| format!("registry.{setting}"));
        let settings = settings.each_ref().map(String::as_str);
        let rights = helm::template("templates/registry/rbac.yaml", &settings).unwrap();
        let file = bed.plane.run_dir().path().join("new-before-old.yaml");
        std::fs::write(&file, rights).unwrap();
        bed.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()]).await;
        bed
    }

    pub fn client(&self) -> &Client {
        self.plane.client()
    }

    pub fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client().clone())
    }

    pub fn deployments(&self) -> Api<Deployment> {
        Api::default_namespaced(self.client().clone())
    }

    /// Writes the state of a node as its collector would.
    pub async fn publish(&self, node: &str, board: Board) {
        self.publish_used(node, board, None).await;
    }

    /// As [`Self::publish`], with what is published of the uses of its bitstreams.
    pub async fn publish_used(&self, node: &str, board: Board, reuse: Option<&str>) {
        let plugin = match board {
            Board::Wanted => json!({"boards": {"dm0": [2, 2]}, "wanted": {"dm0": "the-pod-that-waits"}}),
            Board::There | Board::Lost => Value::Null,
        };
        self.publish_with(node, board, &plugin, reuse).await;
    }

    /// Writes the state of a node, with what its plugin reports and what is published of the uses of its bitstreams, and
    /// waits until the extender knows it, so that no pod is placed by the state before.
    pub async fn publish_with(&self, node: &str, board: Board, plugin: &Value, reuse: Option<&str>) {
        let seq = self.sequence.fetch_add(1, Ordering::Relaxed);
        let mut state = json!({
            "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 3_600_000, "measuredAtMs": 5, "windowMs": 300_000,
            "usageMs": 0, "reconfigurationMs": 0, "window": {"bucketMs": 10_000},
            "devices": [{"id": "dm0", "vendor": "intel", "board": "a10", "shell": "1.2", "slots": 2, "loaded": [0],
                         "healthy": !matches!(board, Board::Lost)}],
            "bitstreams": [{"name": "sobel", "digest": "0a".repeat(16), "lastUsedAgoMs": 0}],
        });
        if !plugin.is_null() {
            state["plugin"] = plugin.clone();
        }
        let mut annotations = json!({ANNOTATION: state.to_string()});
        if let Some(reuse) = reuse {
            annotations[REUSE_ANNOTATION] = json!(reuse);
        }
        let nodes: Api<KubeNode> = Api::all(self.client().clone());
        let patch = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": node, "annotations": annotations},
        });
        let params = PatchParams::apply("fpga-collector").force();
        nodes.patch(node, &params, &Patch::Apply(&patch)).await.unwrap();
        wait::until("the extender to know the state", async || {
            let known = self.http.get(&extender::url(&self.plane, "/nodes")).await?.json()?;
            let is_it = |known: &&Value| {
                known["name"] == node && known["known"]["state"]["seq"].as_u64() >= Some(seq)
            };
            Ok(known.as_array().into_iter().flatten().find(is_it).map(drop))
        })
        .await
        .unwrap();
    }

    /// What a node says on which workloads are kept off it.
    pub async fn marks(&self, node: &str) -> Option<String> {
        let nodes: Api<KubeNode> = Api::all(self.client().clone());
        nodes.get(node).await.unwrap().annotations().get(MOVED_OFF_ANNOTATION).cloned()
    }

    /// Waits for an event with this reason on a Deployment.
    pub async fn until_told(&self, reason: &str) -> Event {
        let events: Api<Event> = Api::default_namespaced(self.client().clone());
        let what = format!("the event {reason}");
        let found = wait::until(&what, async || {
            let events = events.list(&ListParams::default()).await?;
            Ok(events.into_iter().find(|event| event.reason.as_deref() == Some(reason)))
        });
        found.await.unwrap()
    }

    /// Runs kubectl.
    pub async fn kubectl(&self, args: &[&str]) -> String {
        kubectl(&self.plane, args).await.unwrap()
    }

    /// Runs our plugin of kubectl as an administrator.
    pub fn plugin(&self, args: &[&str]) -> String {
        let mut command = std::process::Command::new(programs::built("kubectl-fpga").unwrap());
        command.args(args).env_clear().env("KUBECONFIG", self.plane.kubeconfig(&Identity::Admin).unwrap());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Creates a Deployment with a pod on each node, which names its bitstream as the Deployment is called.
    pub async fn create_on_each_node(&self, name: &str) {
        let container = json!({"command": ["/bin/sh", "-c", "exec sleep 3600"]});
        let mut deployment = Self::deployment(name, 1, &container);
        let template = deployment.spec.as_mut().unwrap().template.metadata.as_mut().unwrap();
        template.annotations = Some([("fpga-scheduling.io/bitstreams".to_owned(), name.to_owned())].into());
        self.kubectl(&["cordon", NODES[1]]).await;
        self.deployments().create(&PostParams::default(), &deployment).await.unwrap();
        self.until_on(name, &NODES[..1]).await;
        self.kubectl(&["cordon", NODES[0]]).await;
        self.kubectl(&["uncordon", NODES[1]]).await;
        self.kubectl(&["scale", "deployment", name, "--replicas=2"]).await;
        self.until_on(name, &NODES).await;
        self.kubectl(&["uncordon", NODES[0]]).await;
    }

    /// A Deployment of pods that ask for a board; `script` is what they run.
    pub fn deployment(name: &str, replicas: u32, container: &Value) -> Deployment {
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

    pub async fn create(&self, name: &str, replicas: u32) {
        let container = json!({"command": ["/bin/sh", "-c", "exec sleep 3600"]});
        let deployment = Self::deployment(name, replicas, &container);
        self.deployments().create(&PostParams::default(), &deployment).await.unwrap();
        self.until_ready(name, replicas as usize).await;
    }

    /// The pods of a Deployment that are Ready and stay.
    pub async fn ready(&self, name: &str) -> Result<Vec<Pod>> {
        let pods = self.pods().list(&ListParams::default().labels(&format!("app={name}"))).await?;
        let stays = |pod: &Pod| restricted::is_ready(pod) && pod.metadata.deletion_timestamp.is_none();
        Ok(pods.items.into_iter().filter(stays).collect())
    }

    pub async fn until_ready(&self, name: &str, count: usize) -> Vec<Pod> {
        let what = format!("{count} Ready pods of {name}");
        let ready = wait::until(&what, async || {
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

    /// As [`Self::until_ready`], with one pod on each of these nodes; other nodes are closed.
    async fn until_on(&self, name: &str, nodes: &[&str]) {
        let ready = async || self.until_ready(name, nodes.len()).await;
        restricted::until_on(&self.pods(), nodes, ready).await.unwrap();
    }

    /// Gives a pod of the Deployment the board of its node, as the node plugin does, and takes the board away.
    pub async fn lose_board_of(&self, name: &str) -> Pod {
        let pod = self.ready(name).await.unwrap().remove(0);
        self.give_board(&pod).await;
        self.publish(&node_of(&pod), Board::Lost).await;
        pod
    }

    pub async fn give_board(&self, pod: &Pod) {
        let patch = json!({"metadata": {"annotations": {BOARDS_ANNOTATION: "dm0"}}});
        let patch = Patch::Merge(&patch);
        self.pods().patch(&pod.name_any(), &PatchParams::default(), &patch).await.unwrap();
    }

    /// A registry of short grace, without a cool-down unless `args` have one.
    pub async fn registry(&self, name: &str, mode: &str, args: &[&str]) -> Registry {
        let cool_down: &[&str] =
            if args.contains(&"--moves-cool-down") { &[] } else { &["--moves-cool-down", "0"] };
        let args = [&["--moves", mode, "--board-grace", "500ms"], cool_down, args].concat();
        Registry::start(&self.plane, &self.http, name, &args).await.unwrap()
    }

    /// Waits until a record, or a pod that stays, is as `is_it` says.
    pub async fn until_recorded(&self, key: &str, what: &str, is_it: impl Fn(&Value) -> bool) -> Value {
        let found = wait::until(what, async || {
            let all = records(self.client(), key).await?;
            let found = all.iter().find(|record| is_it(record)).cloned();
            found.map(Some).with_context(|| format!("{key} has {}", json!(all)))
        });
        found.await.unwrap()
    }

    /// Waits until a pod stays for this reason.
    pub async fn until_held(&self, reason: &str) {
        self.until_recorded("held.json", &format!("a pod to stay: {reason}"), |held| {
            held["reason"] == reason
        })
        .await;
    }

    /// Waits until the controllers say that a Deployment can't have all replicas.
    pub async fn until_replica_failure(&self, name: &str) {
        let failure = ["get", "deployment", name, "-o", FAILURE];
        wait::until("a replica to fail", async || Ok((self.kubectl(&failure).await == "True").then_some(())))
            .await
            .unwrap();
    }

    pub async fn moved(&self) -> Vec<Value> {
        records(self.client(), "moves.json").await.unwrap()
    }

    pub async fn is_there(&self, pod: &Pod) -> bool {
        let found = self.pods().get_opt(&pod.name_any()).await.unwrap();
        found.is_some_and(|found| found.uid() == pod.uid() && found.metadata.deletion_timestamp.is_none())
    }

    /// Waits until the registry has looked for moves once more: a further pod that stays is written into the records.
    pub async fn until_looked_again(&self, marker: &str) {
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

    pub async fn stop(self) {
        self.extender.stop(patience()).await;
        for node in self.nodes {
            node.stop().await;
        }
        self.plane.stop().await;
    }
}

pub fn node_of(pod: &Pod) -> String {
    pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default()
}

pub fn other(node: &str) -> &'static str {
    if node == NODES[0] { NODES[1] } else { NODES[0] }
}

pub fn outcome_is(outcome: &str) -> impl Fn(&Value) -> bool {
    move |record| record["outcome"] == outcome
}
