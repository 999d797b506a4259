//! Our programs as pods of the images that users get, installed by the chart.

use super::{LONG, ready, restricted_namespace, restricted_pod, sobel_container, sobel_image};
use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::Runtime;
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::manifests::{NAMESPACE, helm};
use fpga_tests::testbed::programs::repository;
use fpga_tests::testbed::real_node::{
    Image, KubernetesService, RealNode, RealNodeSpec, RunMount, shipped_images,
};
use fpga_tests::testbed::{artifacts, wait};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

/// Longest time from the chart's installation to ready pods.
const INSTALL: Duration = Duration::from_secs(180);
/// The folder of the node with bitstreams, as the chart has it.
const BITSTREAMS: &str = "/var/lib/kube-fpga/bitstreams";

/// A node of the kind that the PoCL values of the chart are for, with bitstreams.
async fn start_node(
    name: &str,
    index: u8,
    run_mount: RunMount,
    images: &[Image],
    plane: &ControlPlane,
) -> RealNode {
    let spec = RealNodeSpec { run_mount, images: images.to_vec(), ..RealNodeSpec::new(name, index) };
    let node = RealNode::start(spec, plane).await.unwrap();
    node.wait_ready().await.unwrap();
    let folder = node.machine().path(BITSTREAMS);
    std::fs::create_dir_all(&folder).unwrap();
    for bitstream in std::fs::read_dir(artifacts::bitstreams(Runtime::from_env().unwrap()).unwrap()).unwrap()
    {
        let bitstream = bitstream.unwrap();
        std::fs::copy(bitstream.path(), folder.join(bitstream.file_name())).unwrap();
    }
    let nodes: Api<Node> = Api::all(plane.client().clone());
    let labels = json!({"metadata": {"labels": {"fpga-scheduling.io/fpga-vendor": "pocl"}}});
    nodes.patch(name, &PatchParams::default(), &Patch::Merge(labels)).await.unwrap();
    node
}

/// Runs Helm as the administrator; returns whether it worked, and what it wrote.
async fn run_helm(plane: &ControlPlane, arguments: &[&str]) -> (bool, String) {
    let output = tokio::process::Command::new(helm().unwrap())
        .args(arguments)
        .args(["--namespace", NAMESPACE])
        .current_dir(repository())
        .env("KUBECONFIG", plane.kubeconfig(&Identity::Admin).unwrap())
        .output()
        .await
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

/// Waits until every pod of the chart is ready.
async fn wait_installed(plane: &ControlPlane, nodes: &[&RealNode]) {
    let daemon_sets: Api<DaemonSet> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let deployments: Api<Deployment> = Api::namespaced(plane.client().clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), NAMESPACE);
    wait::until("the chart's pods to be ready", INSTALL, async || {
        nodes.iter().try_for_each(|node| node.check_running())?;
        let count = i32::try_from(nodes.len())?;
        let sets = daemon_sets.list(&ListParams::default()).await?.items;
        let all_sets = sets.len() == 3
            && sets.iter().all(|set| set.status.as_ref().is_some_and(|status| status.number_ready == count));
        let scheduler = deployments.get("fpga-scheduler-extender").await?.status.unwrap_or_default();
        if all_sets && scheduler.ready_replicas == scheduler.replicas && scheduler.replicas.is_some() {
            return Ok(Some(()));
        }
        let pods = pods.list(&ListParams::default()).await?.items;
        let states = pods.iter().map(|pod| format!("{:?}: {}", pod.metadata.name, waiting_for(pod)));
        anyhow::bail!("{}", states.collect::<Vec<_>>().join("\n"))
    })
    .await
    .unwrap();
}

/// What a pod's containers wait for or ended with.
fn waiting_for(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return "no status".into() };
    let containers = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
    let states = containers
        .map(|container| format!("{} ready={} {:?}", container.name, container.ready, container.state));
    states.collect::<Vec<_>>().join("; ")
}

/// A program of an image that runs on this machine.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Running {
    program: String,
    user: u32,
    capabilities: String,
    root_is_read_only: bool,
}

/// The programs of images that run now.
fn running() -> BTreeSet<Running> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter_map(|process| running_program(&process.path())).collect()
}

fn running_program(process: &Path) -> Option<Running> {
    let command = std::fs::read_to_string(process.join("cmdline")).ok()?;
    let program = command.split('\0').next()?.rsplit('/').next()?.to_owned();
    // Programs of tests have other paths.
    let is_of_an_image = command.starts_with("/usr/local/bin/") || command.starts_with("kube-scheduler\0");
    if !is_of_an_image {
        return None;
    }
    let status = std::fs::read_to_string(process.join("status")).ok()?;
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
    let mounts = std::fs::read_to_string(process.join("mountinfo")).ok()?;
    let root = mounts.lines().find(|line| line.split(' ').nth(4) == Some("/"))?;
    Some(Running {
        program,
        user: field("Uid:")?.split_whitespace().nth(1)?.parse().ok()?,
        capabilities: field("CapEff:")?.trim_start_matches('0').to_owned(),
        root_is_read_only: root.split(' ').nth(5)?.split(',').any(|option| option == "ro"),
    })
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn the_chart_with_our_images_gives_pods_boards_by_one_line_on_two_real_nodes_and_ends_when_it_is_uninstalled()
 {
    let mut plane = ControlPlane::start(&["n1", "n2"]).await.unwrap();
    plane.start_scheduler(&SchedulerConfig::without_extender()).await.unwrap();
    let _service = KubernetesService::start(&plane).unwrap();
    let sobel = sobel_image();
    let mut images = shipped_images().unwrap();
    images.push(sobel.clone());
    let chart = ["manifests/chart", "--create-namespace", "--values", "manifests/values/pocl.yaml"];
    let (installed, text) = run_helm(&plane, &[&["install", "kube-fpga"], chart.as_slice()].concat()).await;
    assert!(installed, "{text}");
    let (one, two) = tokio::join!(
        start_node("n1", 0, RunMount::Executable, &images, &plane),
        start_node("n2", 1, RunMount::NoExec, &images, &plane),
    );
    wait_installed(&plane, &[&one, &two]).await;

    let pods = restricted_namespace(&plane, "shop").await;
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::new(LONG);
    for node in [&one, &two] {
        let name = format!("sobel-on-{}", node.name());
        let pod = restricted_pod(&name, &sobel, node.name(), &sobel_container());
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let pod = ready(&pods, &name, node).await;
        assert_eq!(pod.spec.unwrap().scheduler_name.as_deref(), Some("kube-fpga"));
        case.invoke(&http, &pod.status.unwrap().pod_ip.unwrap()).await.unwrap();
    }

    // The kubelet's sockets are root's. Nobody has a right beyond their user's, or a root file system to write to.
    let expected = [
        ("fpga-collector", 10461),
        ("fpga-device-manager", 10460),
        ("fpga-node-plugin", 0),
        ("fpga-scheduler-extender", 65532),
        ("kube-scheduler", 65532),
    ];
    let expected = expected.map(|(program, user)| Running {
        program: program.to_owned(),
        user,
        capabilities: String::new(),
        root_is_read_only: true,
    });
    assert_eq!(running(), BTreeSet::from(expected));

    let (uninstalled, text) = run_helm(&plane, &["uninstall", "kube-fpga"]).await;
    assert!(!uninstalled, "pods hold boards: {text}");
    for node in [&one, &two] {
        pods.delete(&format!("sobel-on-{}", node.name()), &DeleteParams::default()).await.unwrap();
    }
    wait::until("the pods to be gone", LONG, async || {
        Ok(pods.list(&ListParams::default()).await?.items.is_empty().then_some(()))
    })
    .await
    .unwrap();
    let (uninstalled, text) = run_helm(&plane, &["uninstall", "kube-fpga"]).await;
    assert!(uninstalled, "{text}");
    wait::until("our programs to end", LONG, async || Ok(running().is_empty().then_some(()))).await.unwrap();
    one.stop().await;
    two.stop().await;
    plane.stop().await;
}
