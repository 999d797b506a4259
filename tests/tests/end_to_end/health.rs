//! From a fault of a board to the placement of pods and back: the emulated board hangs, its device manager reports
//! that, the collector writes it to the node's annotation, and the extender's filter rejects the node until the board
//! works again.

use fpga_emulated_board::{Controls, VARIABLE};
use fpga_tests::testbed::cluster::{BoardSpec, Cluster, ClusterSpec, ExtenderAway, NodeCache, Runtime};
use fpga_tests::testbed::wait;
use fpga_tests::testbed::workload::Workload;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

const NODE: &str = "n1";

/// Switches a fault of the board on or off.
type Fault = fn(Controls, bool);

/// A node with an emulated board, and the controls of the board.
struct Bed {
    cluster: Cluster,
    controls: Controls,
    _folder: tempfile::TempDir,
}

impl Bed {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("controls");
        let controls = Controls::open(&file).unwrap();
        let board = BoardSpec {
            slots: 1,
            collector_args: ["--min-write-interval", "500ms"].map(str::to_owned).to_vec(),
            device_manager_args: ["--stuck-timeout", "2s"].map(str::to_owned).to_vec(),
            device_manager_env: vec![(VARIABLE.to_owned(), file.display().to_string())],
            ..BoardSpec::new(NODE, Some(Runtime::EmulatedBoard))
        };
        let spec = ClusterSpec {
            boards: vec![board],
            weights: "1-2-2".to_owned(),
            node_cache: NodeCache::Capable,
            extender_away: ExtenderAway::Wait,
            extender_args: Vec::new(),
        };
        Self { cluster: Cluster::start(spec).await.unwrap(), controls, _folder: folder }
    }

    async fn annotation(&self) -> Option<Value> {
        let annotations = self.cluster.nodes().get(NODE).await.unwrap().metadata.annotations?;
        serde_json::from_str(annotations.get("fpga-scheduling.io/node-state")?).ok()
    }

    async fn is_annotated_as_healthy(&self, healthy: bool) {
        let look = async || {
            let state = self.annotation().await;
            Ok(state.filter(|state| state["devices"][0]["healthy"] == healthy).map(|_| ()))
        };
        let result = wait::until(&format!("the annotation to say healthy: {healthy}"), look).await;
        if let Err(error) = result {
            panic!("{error:#}; it is {:?}", self.annotation().await);
        }
    }

    /// The reason for which the extender's filter rejects the node for a pod; `None` if the node passes.
    /// kube-scheduler is not involved.
    async fn rejection(&self, pod: &Workload) -> Option<String> {
        let body = serde_json::json!({"Pod": pod.pod(), "NodeNames": [NODE]});
        let url = self.cluster.extender_url("/filter");
        let answer = self.cluster.http().post(&url, serde_json::to_vec(&body).unwrap()).await.unwrap();
        let answer = answer.json().unwrap();
        let (failed, later) = (&answer["FailedAndUnresolvableNodes"][NODE], &answer["FailedNodes"][NODE]);
        assert!(later.is_null(), "no eviction mends a board: {answer}");
        let passes =
            answer["NodeNames"].as_array().is_some_and(|names| names.iter().any(|name| name == NODE));
        assert_ne!(passes, failed.is_string(), "{answer}");
        failed.as_str().map(str::to_owned)
    }

    /// Waits until the extender rejects the node for this reason, or takes it: it learns of an annotation a moment after
    /// the API server has it.
    async fn until_rejected(&self, pod: &Workload, reason: Option<&str>) {
        let look = async || {
            let rejection = self.rejection(pod).await;
            anyhow::ensure!(rejection.as_deref() == reason, "{rejection:?}");
            Ok(Some(()))
        };
        wait::until(&format!("the node to be rejected: {reason:?}"), look).await.unwrap();
    }
}

/// The reason of the extender while the board is unhealthy.
const UNHEALTHY: &str = "FPGA device is unhealthy";

/// The reason for which kube-scheduler has not placed the pod.
fn why_not_placed(pod: &Pod) -> Option<&str> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "PodScheduled")?.message.as_deref()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_board_that_hangs_takes_no_pod_until_it_works_again() {
    let faults: [(&str, Fault); 2] = [("hangs", Controls::stuck), ("ends-nothing", Controls::never_end)];
    let bed = Bed::start().await;
    bed.is_annotated_as_healthy(true).await;
    for (name, fault) in faults {
        let waits = Workload::accelerated(name, ["sleep", "1000"]).requires("fpga-vendor", "pocl");
        bed.until_rejected(&waits, None).await;

        fault(bed.controls, true);
        bed.is_annotated_as_healthy(false).await;
        bed.until_rejected(&waits, Some(UNHEALTHY)).await;
        bed.cluster.create(&waits).await.unwrap();
        let unhealthy = |pod: &Pod| why_not_placed(pod).is_some_and(|message| message.contains(UNHEALTHY));
        bed.cluster.wait_for_pod(name, "refused, for a board that is unhealthy", unhealthy).await.unwrap();

        fault(bed.controls, false);
        bed.is_annotated_as_healthy(true).await;
        assert_eq!(bed.cluster.node_of(name).await.unwrap(), NODE);
        bed.until_rejected(&waits, None).await;
    }
    bed.cluster.check_running().unwrap();
    bed.cluster.stop().await;
}
