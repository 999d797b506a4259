//! A real kube-scheduler evicts pods for one of higher priority that wants a board, and the real extender says where that
//! helps. Nodes advertise instances as a node plugin does; the tests write what the plugin would report.

use fpga_core::names::BOARDS_ANNOTATION;
use fpga_tests::testbed::cluster::{
    BoardSpec, Cluster, ClusterSpec, CollectorChoice, ExtenderAway, NodeCache,
};
use fpga_tests::testbed::wait;
use fpga_tests::testbed::workload::Workload;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// A board of a node: its id, its name, and the containers that have it; it takes one.
type Board = (&'static str, &'static str, u32);

/// Starts a cluster whose nodes advertise an instance for each board.
async fn start(nodes: &[(&str, &[Board])], cache: NodeCache) -> Cluster {
    let board = |(name, _): &(&str, &[Board])| BoardSpec {
        collector: CollectorChoice::None,
        ..BoardSpec::new(name, None)
    };
    let spec = ClusterSpec {
        boards: nodes.iter().map(board).collect(),
        weights: "1-2-2".to_owned(),
        node_cache: cache,
        extender_away: ExtenderAway::Wait,
        extender_args: ["--anti-herd", "off"].map(str::to_owned).to_vec(),
    };
    let mut cluster = Cluster::start(spec).await.unwrap();
    cluster.count_instances().await.unwrap();
    for (name, boards) in nodes {
        let resources = json!({"fpga-scheduling.io/accelerated": boards.len().to_string()});
        let status = json!({"status": {"capacity": resources, "allocatable": resources}});
        let params = PatchParams::default();
        cluster.nodes().patch_status(name, &params, &Patch::Merge(&status)).await.unwrap();
        cluster.annotate(name, &state(1, boards).to_string()).await.unwrap();
    }
    until_known(&cluster, 1, nodes.len()).await;
    let classes: Api<PriorityClass> = Api::all(cluster.plane().client().clone());
    let high = json!({"metadata": {"name": "high"}, "value": 1000});
    classes.create(&PostParams::default(), &serde_json::from_value(high).unwrap()).await.unwrap();
    cluster
}

fn state(seq: u64, boards: &[Board]) -> Value {
    let device = |(id, board, _): &Board| json!({"id": id, "vendor": "none", "board": board, "slots": 4, "healthy": true});
    let instances = |(id, _, used): &Board| ((*id).to_owned(), json!([used, 1]));
    json!({
        "v": 1, "boot": 1, "seq": seq, "heartbeatMs": 60_000, "windowMs": 300_000,
        "measuredAtMs": Timestamp::now().as_millisecond(), "usageMs": 0, "reconfigurationMs": 0,
        "devices": boards.iter().map(device).collect::<Vec<_>>(), "window": {"bucketMs": 10_000},
        "plugin": {"boards": boards.iter().map(instances).collect::<serde_json::Map<_, _>>()},
    })
}

async fn until_known(cluster: &Cluster, seq: u64, count: usize) {
    wait::until("the extender to know the states", async || {
        let nodes = cluster.extender_nodes().await?;
        let known = nodes.iter().filter(|node| node["known"]["state"]["seq"] == seq);
        Ok((known.count() == count).then_some(()))
    })
    .await
    .unwrap();
}

fn sleeper(name: &str) -> Workload {
    Workload::accelerated(name, ["sleep", "1000"])
}

/// Says, as a node plugin does, that the pod has this board.
async fn announce(cluster: &Cluster, pod: &str, board: &str) {
    let annotations = json!({"metadata": {"annotations": {BOARDS_ANNOTATION: board}}});
    cluster.pods().patch(pod, &PatchParams::default(), &Patch::Merge(&annotations)).await.unwrap();
}

/// The pods of these names that nobody has evicted.
async fn left<'p>(cluster: &Cluster, names: &[&'p str]) -> Vec<&'p str> {
    let mut left = Vec::new();
    for name in names {
        let pod = cluster.pods().get_opt(name).await.unwrap();
        if pod.is_some_and(|pod| pod.metadata.deletion_timestamp.is_none()) {
            left.push(*name);
        }
    }
    left
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_pod_of_low_priority_gives_its_board_to_a_pod_of_high_priority() {
    for cache in [NodeCache::Capable, NodeCache::FullNodes] {
        let nodes: [(&str, &[Board]); 2] =
            [("n1", &[("dm0", "emulated", 0)]), ("n2", &[("dm0", "emulated", 0)])];
        let cluster = start(&nodes, cache).await;
        for pod in ["low-1", "low-2"] {
            cluster.create(&sleeper(pod)).await.unwrap();
            cluster.node_of(pod).await.unwrap();
            announce(&cluster, pod, "dm0").await;
        }
        // The reports count the pods, and go on doing so after their end.
        for (name, _) in nodes {
            let full = state(2, &[("dm0", "emulated", 1)]).to_string();
            cluster.annotate(name, &full).await.unwrap();
        }
        until_known(&cluster, 2, 2).await;
        cluster.create(&sleeper("high").priority_class("high")).await.unwrap();
        cluster.node_of("high").await.unwrap();
        assert_eq!(left(&cluster, &["low-1", "low-2"]).await.len(), 1, "{cache:?}");
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_boards_the_one_that_the_pod_asks_for_becomes_free() {
    let cluster = start(&[("n1", &[("dm0", "a10", 0), ("dm1", "s10", 0)])], NodeCache::Capable).await;
    // kube-scheduler proposes the pod that came last, which has the other board.
    for (pod, board) in [("first", "dm0"), ("last", "dm1")] {
        cluster.create(&sleeper(pod)).await.unwrap();
        cluster.node_of(pod).await.unwrap();
        announce(&cluster, pod, board).await;
    }
    let full = state(2, &[("dm0", "a10", 1), ("dm1", "s10", 1)]).to_string();
    cluster.annotate("n1", &full).await.unwrap();
    until_known(&cluster, 2, 1).await;
    let high = sleeper("high").requires("board", "a10").priority_class("high");
    cluster.create(&high).await.unwrap();
    cluster.node_of("high").await.unwrap();
    assert_eq!(left(&cluster, &["first", "last"]).await, ["last"]);
    cluster.stop().await;
}
