//! The pool in pods, as the chart installs it: a pod of a node without a board has its job done by a board of another node.

use crate::routed::processes;
use anyhow::Context as _;
use fpga_images::FileTree;
use fpga_test_kit::patience;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::helm::NAMESPACE;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::real_cluster::RealCluster;
use fpga_tests::testbed::real_node::Image;
use fpga_tests::testbed::restricted::RestrictedPod;
use fpga_tests::testbed::{artifacts, programs, wait};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::path::Path;

/// Values of the chart for a pool that the pods of the namespace `shop` use, also with Bitstreams of their own, which a registry accepts.
pub const VALUES: [&str; 3] =
    ["pool.enabled=true", "pool.clientNamespaces={shop}", "customResources.ownBitstreams.enabled=true"];

const ACCELERATOR: &str = "sha-256";
const IMAGE: &str = "localhost/pool-job:1";
/// The input of the job: the numbers up to this one, a line each.
const LAST: u32 = 300_000;
const INPUT: &str = "seq 1 LAST";
/// The same input from a shell that halts in its middle. Kubernetes leaves `$$` as it is between `$(` and `)`.
const HALTING_INPUT: &str = "sh -c 'seq 1 HALF; kill -STOP $$; seq $((HALF + 1)) LAST'";
/// What the container says at its end is the job's output, or why there is none.
const SCRIPT: &str = "out=$(INPUT | fpga-acc run sha-256 --wait LIMITs | od -An -v -tx1 | tr -d ' \\n'); \
    test -n \"$out\" && echo \"$out\" > /dev/termination-log";

/// An image with the client and a shell.
pub fn job_image() -> Image {
    let client = programs::built("fpga-acc").unwrap();
    let tools = ["/usr/bin/seq", "/usr/bin/od", "/usr/bin/tr"].map(Into::into);
    let tools = FileTree::new().of_this_machine(tools).unwrap();
    let shell = Path::new("/bin/sh").canonicalize().unwrap();
    let image = Image::new(IMAGE, "/usr/bin/sh").user("65532:65532").layer(tools);
    let image = image.file("/usr/bin/sh", &shell).libraries_of(&shell).unwrap();
    image.file("/usr/bin/fpga-acc", &client).libraries_of(&client).unwrap()
}

/// Names the accelerator in the namespace, and lays its bitstream on all nodes.
pub async fn publish(cluster: &RealCluster, namespace: &str) {
    let name = format!("{ACCELERATOR}.bitstream");
    let file = artifacts::accelerator_bitstreams(Runtime::Pocl).unwrap().join(&name);
    let bytes = std::fs::read(&file).unwrap();
    let digest = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for node in cluster.nodes() {
        let folder = node.machine().path("/var/lib/kube-fpga/bitstreams");
        std::fs::copy(&file, folder.join(&name)).unwrap();
    }
    let variant = json!({
        "vendor": "pocl", "board": "pocl", "shell": "1.0", "digest": format!("sha256:{digest}"), "bytes": bytes.len(),
        "source": {"https": "https://files.example/sha-256"},
    });
    let object = json!({
        "apiVersion": "fpga-scheduling.io/v1alpha1", "kind": "Bitstream",
        "metadata": {"name": ACCELERATOR, "namespace": namespace}, "spec": {"variants": [variant]},
    });
    let path = cluster.plane().run_dir().path().join("accelerator.json");
    std::fs::write(&path, object.to_string()).unwrap();
    kubectl(cluster.plane(), &["apply", "-f", path.to_str().unwrap()]).await.unwrap();
    accepted(cluster, namespace, ACCELERATOR).await;
}

/// Waits until the namespace's own Bitstream counts.
pub async fn accepted(cluster: &RealCluster, namespace: &str, name: &str) {
    let accepted = ["wait", "--for=condition=Accepted", "--timeout=2m", "bitstream", name, "-n", namespace];
    kubectl(cluster.plane(), &accepted).await.unwrap();
}

/// Takes the boards off all nodes, and gives one of them back its own: its device manager starts with all files that are
/// there now.
pub async fn boards_only_on(cluster: &RealCluster, node: &str) {
    let nodes: Api<Node> = Api::all(cluster.plane().client().clone());
    let label = async |node: &str, vendor: Option<&str>| {
        let patch = json!({"metadata": {"labels": {"fpga-scheduling.io/fpga-vendor": vendor}}});
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    };
    let managers = async |expected: &[&str]| {
        wait::until(&format!("device managers on {expected:?}"), async || {
            let managers = cluster.addresses("fpga-device-manager").await?;
            Ok(managers.iter().map(|(node, _)| node).eq(expected).then_some(()))
        })
        .await
        .unwrap();
    };
    for node in cluster.nodes() {
        label(node.name(), None).await;
    }
    managers(&[]).await;
    label(node, Some(Runtime::Pocl.vendor())).await;
    managers(&[node]).await;
}

/// Runs a job in a pod on the node `n2`, which has no board then, by the board of the node `n1`.
pub async fn a_pod_on_a_node_without_a_board_has_its_job_done_elsewhere(
    cluster: &RealCluster,
    pods: &Api<Pod>,
    namespace: &str,
) {
    publish(cluster, namespace).await;
    boards_only_on(cluster, "n1").await;
    a_pod_has_its_job_done(cluster, pods, "n2").await;
}

/// Runs a job in the pod `job` on this node, and compares its result.
pub async fn a_pod_has_its_job_done(cluster: &RealCluster, pods: &Api<Pod>, node: &str) {
    start_job(pods, node).await;
    job_ends_right(cluster, pods).await;
}

/// Starts the pod `job` on this node, which runs a job of the pool.
pub async fn start_job(pods: &Api<Pod>, node: &str) {
    start_job_of(INPUT, pods, node).await;
}

/// The same, and the job halts: it has a slot, and waits for the rest of its input until [`halted_job`] goes on.
pub async fn start_halting_job(pods: &Api<Pod>, node: &str) {
    start_job_of(HALTING_INPUT, pods, node).await;
}

/// The shell that has halted, if it has. A pipe has no room for what it has written, so that the job reads.
pub fn halted_job() -> Option<i32> {
    let is_halted = |process: &i32| {
        std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| stat.contains(") T "))
    };
    processes("sh").into_iter().find(is_halted)
}

async fn start_job_of(input: &str, pods: &Api<Pod>, node: &str) {
    // A job that waits while the broker is away has to wait for the next broker's lease and the boards' managers, too.
    let limit = (2 * patience()).as_secs().to_string();
    let script = SCRIPT.replace("INPUT", input).replace("LIMIT", &limit);
    let script = script.replace("LAST", &LAST.to_string()).replace("HALF", &(LAST / 2).to_string());
    let job =
        RestrictedPod::new("job", IMAGE).on(node).in_pool(&format!("https://fpga-pool.{NAMESPACE}.svc:9480"));
    let job = job
        .with("args", json!(["-c", script]))
        .with("terminationMessagePolicy", json!("FallbackToLogsOnError"));
    let mut pod = job.pod().unwrap();
    pod.spec.as_mut().unwrap().restart_policy = Some("Never".to_owned());
    pods.create(&PostParams::default(), &pod).await.unwrap();
}

/// Waits for the end of the pod `job`, and compares its result.
pub async fn job_ends_right(cluster: &RealCluster, pods: &Api<Pod>) {
    let said = wait::until_within("the job's pod to end", 3 * patience(), async || {
        cluster.check_running()?;
        let statuses = pods.get("job").await?.status.and_then(|status| status.container_statuses);
        let state = statuses.and_then(|statuses| statuses.into_iter().next()?.state);
        let state = state.context("the container has no state")?;
        match state.terminated {
            Some(end) => Ok(Some(end.message.unwrap_or_default())),
            None => anyhow::bail!("{:?}", state.waiting),
        }
    })
    .await
    .unwrap();
    let input = (1..=LAST).fold(String::new(), |mut text, number| {
        writeln!(text, "{number}").unwrap();
        text
    });
    let expected: String = Sha256::digest(input).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(said.trim(), expected);
}
