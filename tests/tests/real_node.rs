//! Real nodes: kubelet and containerd, joined to the control plane of the test bed. `make test-node` runs these tests,
//! as root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is a panic")]

#[path = "real_node/installed.rs"]
mod installed;
#[path = "real_node/states.rs"]
mod states;
#[path = "real_node/tenancy.rs"]
mod tenancy;
#[path = "real_node/wishes.rs"]
mod wishes;

use fpga_tests::functions::Function;
use fpga_tests::testbed::cluster::{Runtime, rbac};
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::{Case, FUNCTION_PORT};
use fpga_tests::testbed::real_node::{Boards, Image, RealNode, RealNodeSpec, RunMount};
use fpga_tests::testbed::{artifacts, programs, wait};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(60);

/// A control plane whose pods are placed without the extender.
async fn start_plane(nodes: &[&str]) -> ControlPlane {
    let mut plane = ControlPlane::start(nodes).await.unwrap();
    plane.start_scheduler(&SchedulerConfig::without_extender()).await.unwrap();
    rbac::grant(&plane).await.unwrap();
    plane
}

/// Makes a namespace that enforces Pod Security `restricted`, and returns its pods.
async fn restricted_namespace(plane: &ControlPlane, name: &str) -> Api<Pod> {
    let namespace: Namespace = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }))
    .unwrap();
    let namespaces: Api<Namespace> = Api::all(plane.client().clone());
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(plane.client().clone(), name);
    wait::until("the namespace's service account", LONG, async || {
        Ok(accounts.get_opt("default").await?.map(drop))
    })
    .await
    .unwrap();
    Api::namespaced(plane.client().clone(), name)
}

/// A pod that the namespace takes, with more fields for its only container.
fn restricted_pod(name: &str, image: &Image, node: &str, more: &Value) -> Pod {
    let mut container = json!({
        "name": "main",
        "image": image.name(),
        "imagePullPolicy": "Never",
        "securityContext": {
            "allowPrivilegeEscalation": false,
            "readOnlyRootFilesystem": true,
            "capabilities": {"drop": ["ALL"]},
        },
    });
    let fields = container.as_object_mut().unwrap();
    fields.extend(more.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone())));
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 2,
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }))
    .unwrap()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Waits until the pod is ready and returns it.
async fn ready(pods: &Api<Pod>, name: &str, node: &RealNode) -> Pod {
    wait::until(&format!("the pod {name} to be ready"), LONG, async || {
        node.check_running()?;
        let pod = pods.get(name).await?;
        anyhow::ensure!(is_ready(&pod), "{:?}", pod.status);
        Ok(Some(pod))
    })
    .await
    .unwrap()
}

/// An image with the Sobel function of tests/functions and the libraries that it and an OpenCL driver need, but with no
/// OpenCL driver.
fn sobel_image() -> Image {
    let program = artifacts::functions().unwrap().join("sobel");
    let driver = programs::built("libfpga_opencl_icd.so").unwrap();
    let image = Image::new("localhost/sobel:1", "/sobel").file("/sobel", &program);
    image.libraries_of(&program).unwrap().libraries_of(&driver).unwrap()
}

/// The fields of a container that runs the function: one line asks for a board, the others are the function's own.
fn sobel_container() -> Value {
    json!({
        "resources": {"limits": {"fpga-scheduling.io/accelerated": 1}},
        "env": [
            {"name": "BITSTREAM", "value": "/run/fpga/bitstreams/sobel.bitstream"},
            {"name": "PORT", "value": FUNCTION_PORT.to_string()},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        ],
        "readinessProbe": {"httpGet": {"path": "/healthz", "port": FUNCTION_PORT}, "periodSeconds": 1},
    })
}

/// The cgroups of this test program's nodes, and mounts of nodes.
fn leftovers() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains("/nodes/")).map(str::to_owned);
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let cgroups =
        hierarchies.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let cgroups = cgroups.map(|folder| folder.path().display().to_string());
    let own = format!("fpga-test-node-{}-", std::process::id());
    mounts.chain(cgroups.filter(|path| path.contains(&own))).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn pods_in_restricted_namespaces_become_ready_on_two_real_nodes_and_nothing_stays_behind() {
    let plane = start_plane(&["n1", "n2"]).await;
    let program = artifacts::node_images().unwrap().join("pause");
    let image = Image::new("localhost/idle:1", "/idle").file("/idle", program);
    let spec = |name, index, run_mount| RealNodeSpec {
        run_mount,
        images: vec![image.clone()],
        ..RealNodeSpec::new(name, index)
    };
    let (one, two) = tokio::join!(
        RealNode::start(spec("n1", 0, RunMount::Executable), &plane),
        RealNode::start(spec("n2", 1, RunMount::NoExec), &plane),
    );
    let nodes = [one.unwrap(), two.unwrap()];
    let pods = restricted_namespace(&plane, "careful").await;
    for node in &nodes {
        node.wait_ready().await.unwrap();
        let pod = restricted_pod(&format!("on-{}", node.name()), &image, node.name(), &json!({}));
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    for node in &nodes {
        ready(&pods, &format!("on-{}", node.name()), node).await;
        assert!(node.machine().path("/var/lib/kubelet/device-plugins/kubelet.sock").exists());
    }
    assert_ne!(leftovers(), [""; 0], "the nodes have cgroups");
    let [one, two] = nodes;
    one.stop().await;
    // As after a panic.
    drop(two);
    plane.stop().await;
    assert_eq!(leftovers(), [""; 0]);
    assert!(!Path::new("/var/lib/kubelet/device-plugins/kubelet.sock").exists());
}

/// Runs an OpenCL program on this machine with the token; returns whether it worked.
async fn token_works(boards: &Boards, token: &str, vendors: &Path) -> bool {
    let program: PathBuf = artifacts::opencl_programs().unwrap().join("vector_add");
    let output = tokio::process::Command::new(program)
        .args(["--size", "16"])
        .env("OCL_ICD_VENDORS", vendors)
        .env("FPGA_DEVICE_MANAGERS", format!("unix:{}", boards.socket("dm0").display()))
        .env("FPGA_TOKEN", token)
        .output()
        .await
        .unwrap();
    output.status.success()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn one_line_gives_a_pod_in_a_restricted_namespace_a_board_and_its_token_dies_with_it() {
    let plane = start_plane(&["n1"]).await;
    let image = sobel_image();
    let spec = RealNodeSpec { images: vec![image.clone()], ..RealNodeSpec::new("n1", 0) };
    let node = RealNode::start(spec, &plane).await.unwrap();
    node.wait_ready().await.unwrap();
    let boards = Boards::start(&node, &plane, Runtime::from_env().unwrap(), &["dm0"]).await.unwrap();
    let pods = restricted_namespace(&plane, "shop").await;

    let pod = restricted_pod("sobel", &image, "n1", &sobel_container());
    let applied = Instant::now();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let pod = ready(&pods, "sobel", &node).await;
    println!("apply to ready with a board: {} ms", applied.elapsed().as_millis());
    let address = pod.status.unwrap().pod_ip.unwrap();
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::new(Duration::from_secs(10));
    case.invoke(&http, &address).await.unwrap();

    let tokens = boards.tokens("dm0", "shop");
    let [token] = tokens.as_slice() else { panic!("one pod has {} tokens", tokens.len()) };
    let vendors = tempfile::tempdir().unwrap();
    let driver = programs::built("libfpga_opencl_icd.so").unwrap();
    std::fs::write(vendors.path().join("fpga.icd"), driver.display().to_string()).unwrap();
    assert!(
        token_works(&boards, token, vendors.path()).await,
        "the token opens the board while the pod runs"
    );
    assert!(!token_works(&boards, "0123456789abcdef", vendors.path()).await, "another token does not");

    pods.delete("sobel", &DeleteParams::default()).await.unwrap();
    wait::until("the pod to be gone", LONG, async || {
        Ok(pods.get_opt("sobel").await?.is_none().then_some(()))
    })
    .await
    .unwrap();
    let gone = Instant::now();
    wait::until("the token to be dead", Duration::from_secs(5), async || {
        Ok((!token_works(&boards, token, vendors.path()).await).then_some(()))
    })
    .await
    .unwrap();
    println!("pod gone to token dead: {} ms", gone.elapsed().as_millis());
    assert_eq!(boards.tokens("dm0", "shop"), [""; 0]);
    assert_eq!(std::fs::read_dir(node.machine().path("/run/fpga/claims")).unwrap().count(), 0);
    boards.stop(&node).await;
    node.stop().await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn two_namespaces_with_one_user_id_are_two_tenants_and_each_pod_has_a_token_of_its_own() {
    let plane = start_plane(&["n1"]).await;
    let image = sobel_image();
    let spec = RealNodeSpec { images: vec![image.clone()], ..RealNodeSpec::new("n1", 0) };
    let node = RealNode::start(spec, &plane).await.unwrap();
    node.wait_ready().await.unwrap();
    let runtime = Runtime::from_env().unwrap();
    let boards = Boards::start(&node, &plane, runtime, &["dm0", "dm1"]).await.unwrap();
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::new(Duration::from_secs(10));
    for namespace in ["mill", "shop"] {
        let pods = restricted_namespace(&plane, namespace).await;
        for name in ["sobel-0", "sobel-1"] {
            let pod = restricted_pod(name, &image, "n1", &sobel_container());
            pods.create(&PostParams::default(), &pod).await.unwrap();
            let pod = ready(&pods, name, &node).await;
            case.invoke(&http, &pod.status.unwrap().pod_ip.unwrap()).await.unwrap();
        }
        // On which board a pod is depends on what is resident there by then.
        let tokens = [boards.tokens("dm0", namespace), boards.tokens("dm1", namespace)].concat();
        assert_eq!(tokens.len(), 2, "each pod has a token of its own, for one board");
        assert_ne!(tokens[0], tokens[1]);
    }
    let mut tenants = String::new();
    for board in 0..2 {
        tenants += &http.get(&boards.metrics_url(board)).await.unwrap().text();
    }
    for tenant in ["mill", "shop"] {
        let tasks = format!("fpga_device_manager_tenant_tasks_total{{tenant=\"{tenant}\"");
        assert!(tenants.contains(&tasks), "{tasks} in {tenants}");
    }
    assert!(!tenants.contains("tenant=\"uid:"), "no user id is a tenant");
    boards.stop(&node).await;
    node.stop().await;
    plane.stop().await;
}

/// A part of a node that is killed and started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Plugin,
    Manager,
    Kubelet,
    Containerd,
}

/// Kills the part and starts it again; afterwards the kubelet and the plugin know each other.
async fn kill_and_start(part: Part, node: &mut RealNode, boards: &mut Boards) {
    let before = boards.registrations();
    match part {
        Part::Plugin => {
            boards.kill_plugin().await;
            boards.start_plugin(node).unwrap();
        }
        Part::Manager => {
            boards.kill_manager(0).await;
            boards.start_manager(node, 0).await.unwrap();
            return;
        }
        Part::Kubelet => {
            node.kill_kubelet().await;
            node.start_kubelet().unwrap();
        }
        Part::Containerd => {
            node.kill_containerd().await;
            node.start_containerd().await.unwrap();
            return;
        }
    }
    boards.wait_registered(before).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn after_each_part_of_a_node_was_killed_old_pods_go_on_and_new_ones_get_boards() {
    let plane = start_plane(&["n1"]).await;
    let image = sobel_image();
    let spec = RealNodeSpec { images: vec![image.clone()], ..RealNodeSpec::new("n1", 0) };
    let mut node = RealNode::start(spec, &plane).await.unwrap();
    node.wait_ready().await.unwrap();
    let mut boards = Boards::start(&node, &plane, Runtime::from_env().unwrap(), &["dm0"]).await.unwrap();
    let (old_pods, new_pods) =
        (restricted_namespace(&plane, "old").await, restricted_namespace(&plane, "new").await);
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::new(Duration::from_secs(10));
    let works = async |pods: &Api<Pod>, name: &str| {
        wait::until(&format!("the function {name} to answer"), LONG, async || {
            let status = pods.get(name).await?.status.unwrap_or_default();
            let address = status.pod_ip.clone().unwrap_or_default();
            case.invoke(&http, &address).await.map(Some).map_err(|error| error.context(format!("{status:?}")))
        })
        .await
        .unwrap();
    };
    old_pods
        .create(&PostParams::default(), &restricted_pod("sobel", &image, "n1", &sobel_container()))
        .await
        .unwrap();
    works(&old_pods, "sobel").await;
    let token = boards.tokens("dm0", "old");
    assert_eq!(token.len(), 1);
    for part in [Part::Plugin, Part::Manager, Part::Kubelet, Part::Containerd] {
        println!("{part:?} is killed");
        kill_and_start(part, &mut node, &mut boards).await;
        let name = format!("after-{part:?}").to_lowercase();
        let new = restricted_pod(&name, &image, "n1", &sobel_container());
        new_pods.create(&PostParams::default(), &new).await.unwrap();
        works(&new_pods, &name).await;
        works(&old_pods, "sobel").await;
        assert_eq!(boards.tokens("dm0", "old"), token, "the old pod keeps its token");
        new_pods.delete(&name, &DeleteParams::default()).await.unwrap();
        wait::until("the new pod's token to be revoked", LONG, async || {
            Ok(boards.tokens("dm0", "new").is_empty().then_some(()))
        })
        .await
        .unwrap();
    }
    boards.stop(&node).await;
    node.stop().await;
    plane.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_waits_for_a_board_with_the_reason_also_while_the_plugin_is_killed() {
    let plane = start_plane(&["n1"]).await;
    let image = sobel_image();
    let spec = RealNodeSpec { images: vec![image.clone()], ..RealNodeSpec::new("n1", 0) };
    let node = RealNode::start(spec, &plane).await.unwrap();
    node.wait_ready().await.unwrap();
    let mut boards = Boards::start(&node, &plane, Runtime::from_env().unwrap(), &["dm0"]).await.unwrap();
    let pods = restricted_namespace(&plane, "shop").await;

    boards.kill_manager(0).await;
    let pod = restricted_pod("sobel", &image, "n1", &sobel_container());
    pods.create(&PostParams::default(), &pod).await.unwrap();
    let reason = wait::until("the pod's reason", LONG, async || {
        let status = pods.get("sobel").await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let waiting = containers.into_iter().next().and_then(|container| container.state?.waiting);
        Ok(waiting.and_then(|waiting| waiting.message).filter(|message| message.contains("FPGA")))
    })
    .await
    .unwrap();
    assert!(reason.contains("FPGA device is unhealthy"), "{reason}");

    // The kubelet tries again; the plugin is then in the midst of its waiting.
    let before = boards.registrations();
    boards.kill_plugin().await;
    boards.start_manager(&node, 0).await.unwrap();
    boards.start_plugin(&node).unwrap();
    boards.wait_registered(before).await.unwrap();
    ready(&pods, "sobel", &node).await;
    assert_eq!(boards.tokens("dm0", "shop").len(), 1);
    boards.stop(&node).await;
    node.stop().await;
    plane.stop().await;
}
