//! 200 pods arrive at once at a real kube-scheduler. The nodes' usages differ and don't change, and one node has the
//! bitstream. By measurements alone the pods herd on that node; with expected usage they spread.

use fpga_tests::testbed::cluster::{
    BoardSpec, Cluster, ClusterSpec, CollectorChoice, ExtenderAway, NodeCache,
};
use fpga_tests::testbed::wait;
use fpga_tests::testbed::workload::Workload;
use futures::future::join_all;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// Number of nodes in tests without knowledge of pods. A pod of unknown usage costs one rank, so 200 pods fill the 20
/// least used nodes like a staircase. On more nodes the limit of twice the mean needs known usage.
const NODES: usize = 10;
/// Number of nodes in the test with known usage.
const MORE_NODES: usize = 20;
const PODS: usize = 200;
/// The weights in the ConfigMap of the manifests.
const SHIPPED_WEIGHTS: &str = "0.5-2-2-1-0-0";

/// The cluster, and the number of pods on each node, the least used node first.
struct Herd {
    cluster: Cluster,
    pods: Vec<usize>,
}

fn name(index: usize) -> String {
    format!("n{index}")
}

/// Usage of a node in the window in milliseconds. It grows quadratically with the index.
fn usage(index: usize) -> usize {
    index * 2_000 + index * index * 700
}

fn node_state(index: usize, has_bitstream: bool) -> Value {
    let bitstreams = if has_bitstream { json!([{"name": "sobel", "lastUsedAgoMs": 0}]) } else { json!([]) };
    let usage = usage(index);
    // The newest slices first, each with at most as much as four slots can do in it.
    let slices: Vec<usize> = (0..=usage / 40_000).map(|slice| (usage - slice * 40_000).min(40_000)).collect();
    json!({
        "v": 1, "boot": 1, "seq": 1, "heartbeatMs": 60_000, "windowMs": 300_000,
        "measuredAtMs": Timestamp::now().as_millisecond(), "usageMs": usage, "reconfigurationMs": 0,
        "devices": [{"id": "dm0", "vendor": "none", "platform": "p", "board": "emulated", "shell": "1.0", "slots": 4,
                     "usageMs": usage, "reconfigurationMs": 0, "queued": 0, "healthy": true}],
        "bitstreams": bitstreams,
        "window": {"bucketMs": 10_000, "usageMs": slices, "reconfigurationMs": [0]},
        "truncated": 0,
    })
}

impl Herd {
    /// Starts a cluster in which the node `with_bitstream` has the pods' bitstream, and creates the pods.
    async fn of(with_bitstream: usize, anti_herd: &str) -> Self {
        let mut herd = Self::start(NODES, anti_herd).await;
        herd.publish(with_bitstream).await;
        herd.let_come().await;
        println!("anti-herd {anti_herd}, bitstream on {}: {}", name(with_bitstream), herd.told());
        herd
    }

    async fn start(nodes: usize, anti_herd: &str) -> Self {
        let board =
            |index| BoardSpec { collector: CollectorChoice::None, ..BoardSpec::new(&name(index), None) };
        let spec = ClusterSpec {
            boards: (0..nodes).map(board).collect(),
            weights: SHIPPED_WEIGHTS.to_owned(),
            node_cache: NodeCache::Capable,
            extender_away: ExtenderAway::Wait,
            extender_args: vec!["--anti-herd".to_owned(), anti_herd.to_owned()],
        };
        Self { cluster: Cluster::start(spec).await.unwrap(), pods: vec![0; nodes] }
    }

    /// The distribution of the pods as text.
    fn told(&self) -> String {
        let most = *self.pods.iter().max().unwrap() as f64;
        let mean = PODS as f64 / self.pods.len() as f64;
        format!("{:?}, most {:.2} x the mean", self.pods, most / mean)
    }

    /// Writes the nodes' annotations as their collectors would, and waits until the extender knows them.
    async fn publish(&self, with_bitstream: usize) {
        for index in 0..self.pods.len() {
            let state = node_state(index, index == with_bitstream).to_string();
            self.cluster.annotate(&name(index), &state).await.unwrap();
        }
        wait::until("the extender to know the states", async || {
            let nodes = self.cluster.extender_nodes().await?;
            let fresh = nodes.iter().filter(|node| node["freshness"] == "fresh");
            Ok((fresh.count() == self.pods.len()).then_some(()))
        })
        .await
        .unwrap();
    }

    async fn let_come(&mut self) {
        let pods: Vec<Workload> = (0..PODS)
            .map(|index| Workload::accelerated(&format!("p{index}"), ["sleep", "1000"]).bitstreams("sobel"))
            .collect();
        for created in join_all(pods.iter().map(|pod| self.cluster.create(pod))).await {
            created.unwrap();
        }
        let placed = wait::until("all pods to be placed", async || {
            self.cluster.check_running()?;
            let mut placed = BTreeMap::new();
            let with_us = ListParams::default().labels("app!=old");
            for pod in self.cluster.pods().list(&with_us).await?.items {
                let Some(node) = pod.spec.and_then(|spec| spec.node_name) else { return Ok(None) };
                *placed.entry(node).or_insert(0) += 1;
            }
            Ok(Some(placed))
        })
        .await
        .unwrap();
        for (index, pods) in self.pods.iter_mut().enumerate() {
            *pods = placed.get(&name(index)).copied().unwrap_or_default();
        }
        assert_eq!(self.pods.iter().sum::<usize>(), PODS);
        // kube-scheduler logs a failed prioritize call only at V(5), and continues without the scores.
        let log = self.cluster.plane().scheduler_log();
        assert!(!log.contains("Failed to run extender's priority function"), "a prioritize call failed");
    }

    /// Creates a pod on each node whose binding is longer ago than the window, for an extender that sees it for the
    /// first time.
    async fn let_one_have_been_there(&self) {
        let pods = self.cluster.pods();
        for index in 0..self.pods.len() {
            let pod_name = format!("old{index}");
            let mut pod = Workload::accelerated("old", ["sleep", "1000"]).pod();
            pod["metadata"]["name"] = json!(pod_name);
            pod["spec"]["nodeName"] = json!(name(index));
            pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
        }
        let long_ago = Timestamp::now() - Duration::from_secs(3_600);
        let condition = json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": long_ago});
        let patch = json!({"status": {"conditions": [condition]}});
        for index in 0..self.pods.len() {
            let pod_name = format!("old{index}");
            let runs =
                |pod: &Pod| pod.status.as_ref().is_some_and(|it| it.phase.as_deref() == Some("Running"));
            self.cluster.wait_for_pod(&pod_name, "running", runs).await.unwrap();
            pods.patch_status(&pod_name, &PatchParams::default(), &Patch::Strategic(&patch)).await.unwrap();
        }
    }

    async fn metric(&self, name: &str) -> f64 {
        self.cluster.http().get(&self.cluster.extender_url("/metrics")).await.unwrap().metric(name)
    }
}

/// Most pods on a node: twice the mean.
const MOST: usize = 2 * PODS / NODES;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_what_is_expected_of_them_two_hundred_pods_at_once_spread() {
    let herd = Herd::of(0, "on").await;
    assert!(herd.pods.iter().all(|pods| *pods <= MOST), "{:?}", herd.pods);

    // The extender knows all pods, waits for no binding, and explains the expected usage of each node.
    let watched = async || {
        let placed = herd.metric("fpga_extender_placed_pods").await;
        let awaited = herd.metric("fpga_extender_awaited_bindings").await;
        Ok(((placed - PODS as f64).abs() < 0.5 && awaited < 0.5).then_some(()))
    };
    wait::until("the extender to see all pods bound", watched).await.unwrap();
    let last = Workload::accelerated("last", ["sleep", "1000"]).bitstreams("sobel");
    herd.cluster.create(&last).await.unwrap();
    herd.cluster.node_of("last").await.unwrap();
    let url = herd.cluster.extender_url("/explain/default/last");
    let explained = herd.cluster.http().get(&url).await.unwrap().json().unwrap();
    for node in explained["prioritize"]["nodes"].as_array().unwrap() {
        let index: usize = node["node"].as_str().unwrap()[1..].parse().unwrap();
        assert_eq!(node["measured"]["usageMs"], usage(index), "{node}");
        let there = node["expected"]["pods"].as_f64().unwrap_or_default();
        assert!((there - herd.pods[index] as f64).abs() < 0.5, "{node} with {:?}", herd.pods);
    }
    herd.cluster.stop().await;
}

/// How 200 pods are distributed otherwise.
mod timing {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "measures the machine: make test-timing"]
    async fn by_measurements_alone_two_hundred_pods_at_once_herd_on_one_node() {
        let herd = Herd::of(0, "off").await;
        let most = *herd.pods.iter().max().unwrap();
        // A stand-in node has room for 110 pods, like a kubelet's.
        assert!(most >= 5 * PODS / NODES, "{:?}", herd.pods);
        assert!((herd.metric("fpga_extender_placed_pods").await).abs() < 0.5, "pods are not even watched");
        herd.cluster.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "measures the machine: make test-timing"]
    async fn they_spread_also_where_a_busy_node_has_the_bitstream() {
        let herd = Herd::of(5, "on").await;
        assert!(herd.pods.iter().all(|pods| *pods <= MOST), "{:?}", herd.pods);
        herd.cluster.stop().await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    #[ignore = "measures the machine: make test-timing"]
    async fn what_pods_of_the_past_used_is_expected_of_new_ones() {
        let mut herd = Herd::start(MORE_NODES, "on").await;
        herd.let_one_have_been_there().await;
        herd.cluster.kill_extender().await;
        herd.cluster.start_extender().await.unwrap();
        herd.publish(0).await;
        let learnt =
            async || Ok((herd.metric("fpga_extender_mean_pod_usage_seconds").await > 0.0).then_some(()));
        wait::until("the extender to learn what a pod uses", learnt).await.unwrap();
        herd.let_come().await;
        println!("anti-herd on, with a past, bitstream on n0: {}", herd.told());
        assert!(herd.pods.iter().all(|pods| *pods <= 2 * PODS / MORE_NODES), "{:?}", herd.pods);
        herd.cluster.stop().await;
    }
}
