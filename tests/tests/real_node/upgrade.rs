//! The page of upgrades (book/operate/upgrade.md), followed on real nodes while pods that ask for a board are created all the
//! time.

use super::site::{create, sobel_image};
use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::documents::{self, Runner, Shell};
use fpga_tests::testbed::helm::helm;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::programs::{built, repository};
use fpga_tests::testbed::real_cluster::{RealCluster, RealClusterSpec};
use fpga_tests::testbed::real_node::{Image, RunMount, shipped_images};
use fpga_tests::testbed::restricted::{self, RestrictedPod, is_ready};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;

/// Pause between two pods of the load.
const CREATE_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of pods of the load at a time, so that a slow machine gets no backlog.
const MAX_PODS: usize = 8;
/// Pause between two looks at the pods of the load.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The page.
const PAGE: &str = "book/operate/upgrade.md";
/// The chart, as the page names it.
const CHART: &str = "manifests/chart";
/// The version of our images and the chart, and the next one.
const VERSION: &str = env!("CARGO_PKG_VERSION");
const NEXT: &str = "99.0.0";
/// Longest time for the commands of the page, but for the roll-out.
const COMMANDS: Duration = Duration::from_secs(120);

/// The commands that the page says this test runs, under the heading.
fn commands(heading: &str) -> String {
    let own = Runner::Test(
        "the_page_of_upgrades_brings_new_images_and_back_while_pods_are_bound_and_none_fails".to_owned(),
    );
    let page = documents::text(Path::new(PAGE)).unwrap();
    let part = page
        .split("\n# ")
        .chain(page.split("\n## "))
        .find(|part| part.trim_start_matches("# ").starts_with(heading));
    let part = part.unwrap().split("\n## ").next().unwrap();
    let blocks = documents::blocks(part).into_iter().filter(|block| block.runner == own);
    let commands: String = blocks.map(|block| block.text).collect();
    assert!(!commands.is_empty(), "{PAGE} has no commands under {heading}");
    commands
}

/// The chart of the next version, which a reader has with that version's repository.
fn next_chart(folder: &Path) {
    let copied =
        std::process::Command::new("cp").arg("-r").arg(repository().join(CHART)).arg(folder).status();
    assert!(copied.unwrap().success());
    let path = folder.join("chart/Chart.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(path, text.replace(&format!("ersion: {VERSION}\n"), &format!("ersion: {NEXT}\n")))
        .unwrap();
}

/// The tags of our images in the chart's pods that run.
async fn tags(cluster: &RealCluster) -> BTreeSet<String> {
    let pods = cluster.pods().list(&ListParams::default()).await.unwrap().items;
    let running = pods.into_iter().filter(|pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        phase == Some("Running") && pod.metadata.deletion_timestamp.is_none()
    });
    let specs = running.filter_map(|pod| pod.spec);
    let containers =
        specs.flat_map(|spec| spec.containers.into_iter().chain(spec.init_containers.into_iter().flatten()));
    let ours =
        containers.filter_map(|container| container.image).filter(|image| image.starts_with("kube-fpga/"));
    ours.filter_map(|image| Some(image.rsplit_once(':')?.1.to_owned())).collect()
}

/// Pods that ask for a board, one each second, or fewer where [`MAX_PODS`] are there. Each is deleted when it is ready.
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
        let (stop, all_created) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (stopped, created_in, image) = (Arc::clone(&stop), pods.clone(), image.clone());
        let creates_no_more = Arc::clone(&all_created);
        let created = tokio::spawn(async move {
            let mut number = 0;
            while !stopped.load(Ordering::SeqCst) {
                let pods = created_in.list(&ListParams::default()).await.unwrap().items;
                if pods.len() < MAX_PODS {
                    let pod = RestrictedPod::new(&format!("load-{number}"), image.name());
                    create(&created_in, &pod.boards("fpga-scheduling.io/accelerated", 1)).await;
                    number += 1;
                }
                tokio::time::sleep(CREATE_INTERVAL).await;
            }
            creates_no_more.store(true, Ordering::SeqCst);
            number
        });
        let seen_in = pods.clone();
        let seen = tokio::spawn(async move {
            let mut seen = Seen::default();
            loop {
                // A pod may still be created after the load was told to stop.
                let last = all_created.load(Ordering::SeqCst);
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
async fn the_page_of_upgrades_brings_new_images_and_back_while_pods_are_bound_and_none_fails() {
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
    // The images of the next version are brought to the nodes.
    for image in shipped_images().unwrap() {
        let Some(name) = image.name().strip_suffix(&format!(":{VERSION}")) else { continue };
        for node in cluster.nodes() {
            let tagged = |tag: &str| format!("docker.io/{name}:{tag}");
            node.tag_image(&tagged(VERSION), &tagged(NEXT)).await.unwrap();
        }
    }
    let folder = tempfile::tempdir().unwrap();
    next_chart(folder.path());
    let (kubectl, helm) = (cluster.plane().kubectl(), helm().unwrap());
    let programs = built("kubectl-fpga").unwrap();
    let shell = [&kubectl, &helm, &programs].map(|program| program.parent().unwrap());
    let shell = Shell::new(&shell).unwrap();
    let shell = shell.env("KUBECONFIG", cluster.plane().kubeconfig(&Identity::Admin).unwrap());
    let follow = async |heading: &str| {
        let begin = Instant::now();
        let next = folder.path().join("chart").display().to_string();
        let said = shell.run(&commands(heading).replace(CHART, &next), COMMANDS).await.unwrap();
        cluster.wait_rolled_out().await.unwrap();
        println!("{heading} took {:?}: {said}", begin.elapsed());
    };
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
    follow("Upgrade, and back").await;
    assert_eq!(tags(&cluster).await, BTreeSet::from([NEXT.to_owned()]));
    function_answers().await;
    follow("Back").await;
    assert_eq!(tags(&cluster).await, BTreeSet::from([VERSION.to_owned()]));
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
