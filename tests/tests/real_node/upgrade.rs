//! `helm upgrade` and `helm rollback` on real nodes, while pods that ask for a board are created all the time.

use super::site::{create, sobel_image};
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{Image, RunMount, shipped_images};
use fpga_tests::testbed::restricted::{self, RestrictedPod, is_ready};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Pause between two pods of the load.
const CREATE_INTERVAL: Duration = Duration::from_secs(1);
/// Pause between two looks at the pods of the load.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Pods that ask for a board, one each second, each of which is deleted when it is ready.
struct Load {
    stop: Arc<AtomicBool>,
    created: JoinHandle<u32>,
    seen: JoinHandle<Seen>,
}

/// What became of the pods of a load.
#[derive(Debug, Default)]
struct Seen {
    /// When each pod was seen first, until it is bound.
    unbound: BTreeMap<String, Instant>,
    bound: BTreeMap<String, Duration>,
    ready: BTreeMap<String, Duration>,
    failed: BTreeMap<String, String>,
}

impl Load {
    fn start(pods: &Api<Pod>, image: &Image) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, created_in, image) = (Arc::clone(&stop), pods.clone(), image.clone());
        let created = tokio::spawn(async move {
            let mut number = 0;
            while !stopped.load(Ordering::SeqCst) {
                let pod = RestrictedPod::new(&format!("load-{number}"), image.name());
                create(&created_in, &pod.boards("fpga-scheduling.io/accelerated", 1)).await;
                number += 1;
                tokio::time::sleep(CREATE_INTERVAL).await;
            }
            number
        });
        let (stopped, seen_in) = (Arc::clone(&stop), pods.clone());
        let seen = tokio::spawn(async move {
            let mut seen = Seen::default();
            loop {
                let last = stopped.load(Ordering::SeqCst);
                let pods = seen_in.list(&ListParams::default()).await.unwrap().items;
                let all_are_gone = pods.is_empty();
                for pod in pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
                    if seen.look(&pod) {
                        seen_in.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
                    }
                }
                if last && all_are_gone {
                    return seen;
                }
                tokio::time::sleep(LOOK_INTERVAL).await;
            }
        });
        Self { stop, created, seen }
    }

    /// Ends the load, and waits until each of its pods has become ready or has failed.
    async fn end(self) -> (u32, Seen) {
        self.stop.store(true, Ordering::SeqCst);
        let created = self.created.await.unwrap();
        let seen = tokio::time::timeout(2 * patience(), self.seen).await;
        (created, seen.unwrap_or_else(|_| panic!("a pod neither becomes ready nor fails")).unwrap())
    }
}

impl Seen {
    /// Takes the pod's state; returns whether the pod has done its part.
    fn look(&mut self, pod: &Pod) -> bool {
        let name = pod.name_any();
        let first = *self.unbound.entry(name.clone()).or_insert_with(Instant::now);
        if pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()) {
            self.bound.entry(name.clone()).or_insert_with(|| first.elapsed());
        }
        let status = pod.status.clone().unwrap_or_default();
        if status.phase.as_deref() == Some("Failed") {
            self.failed.insert(name, format!("{:?}: {:?}", status.reason, status.message));
            return true;
        }
        if is_ready(pod) {
            self.ready.entry(name).or_insert_with(|| first.elapsed());
            return true;
        }
        false
    }

    fn longest(durations: &BTreeMap<String, Duration>) -> Duration {
        durations.values().copied().max().unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn pods_are_bound_and_none_fails_while_helm_upgrades_and_rolls_back_every_part() {
    let idle = restricted::idle_image().unwrap();
    let sobel = sobel_image();
    let nodes = [("n1", RunMount::Executable), ("n2", RunMount::NoExec)];
    let cluster = RealCluster::start(RealClusterSpec {
        nodes: nodes.map(|(name, run_mount)| (name.to_owned(), run_mount)).to_vec(),
        images: vec![idle.clone(), sobel.clone()],
        values: ["boardKinds[0].drainSeconds=5", "nodePlugin.instancesPerBoard=64"]
            .map(str::to_owned)
            .to_vec(),
    })
    .await
    .unwrap();
    // Our images under the tag of the next version.
    for image in shipped_images().unwrap() {
        let Some(name) = image.name().strip_suffix(":latest") else { continue };
        for node in cluster.nodes() {
            let tagged = |tag: &str| format!("docker.io/{name}:{tag}");
            node.tag_image(&tagged("latest"), &tagged("next")).await.unwrap();
        }
    }
    let client = cluster.plane().client();
    let shop = restricted::namespace(client, "shop").await.unwrap();
    let function = RestrictedPod::function("sobel", Function::Sobel, sobel.name());
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "shop");
    deployments.create(&PostParams::default(), &function.deployment(1).unwrap()).await.unwrap();
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let function_answers = async || {
        wait::until_within("the function to answer", 2 * patience(), async || {
            let pods = shop.list(&ListParams::default()).await?.items;
            let pod = pods.into_iter().find(is_ready);
            let Some(address) = pod.and_then(|pod| pod.status?.pod_ip) else { return Ok(None) };
            case.invoke(cluster.http(), &address).await.map(Some)
        })
        .await
        .unwrap();
    };
    function_answers().await;

    let pods = restricted::namespace(client, "load").await.unwrap();
    let load = Load::start(&pods, &idle);
    let values = ["boardKinds[0].drainSeconds=6", "nodePlugin.instancesPerBoard=65", "scheduler.weight=9"];
    let begin = Instant::now();
    cluster.upgrade(&[&["images.tag=next"], &values[..]].concat()).await.unwrap();
    println!("the upgrade took {:?}", begin.elapsed());
    let ours = cluster.pods().list(&ListParams::default()).await.unwrap().items;
    let images = ours.iter().flat_map(|pod| pod.spec.iter().flat_map(|spec| &spec.containers));
    let images: Vec<&str> = images.filter_map(|container| container.image.as_deref()).collect();
    assert!(!images.iter().any(|image| image.ends_with(":latest")), "{images:?}");
    function_answers().await;

    let begin = Instant::now();
    cluster.rollback().await.unwrap();
    println!("the rollback took {:?}", begin.elapsed());
    function_answers().await;
    let (created, seen) = load.end().await;
    println!(
        "{created} pods were created; longest time to be bound {:?}, to be ready {:?}",
        Seen::longest(&seen.bound),
        Seen::longest(&seen.ready)
    );
    assert_eq!(seen.failed, BTreeMap::new());
    assert_eq!(seen.bound.len(), created as usize, "every pod is bound");
    assert_eq!(seen.ready.len(), created as usize, "every pod becomes ready");
    cluster.stop().await;
}
