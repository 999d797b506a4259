//! Real nodes: kubelet and containerd, joined to the control plane of the test bed. `make test-node` runs these tests,
//! as root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is a panic")]

mod installed;
mod library;
mod load;
mod network_policies;
mod outages;
mod platforms;
mod pool;
mod publisher;
mod quick_start;
mod registry;
mod routed;
mod site;
mod states;
mod tenancy;
mod upgrade;
mod whole_boards;
mod wishes;

use fpga_test_kit::patience;
use fpga_tests::functions::Function;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::invoke::Case;
use fpga_tests::testbed::real_node::{Boards, RealNode, RealNodeSpec, RunMount, leftovers};
use fpga_tests::testbed::restricted::{self, RestrictedPod};
use fpga_tests::testbed::{artifacts, programs, wait};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use site::{Site, create, delete, ready, sobel, start_plane};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn pods_in_restricted_namespaces_become_ready_on_two_real_nodes_and_nothing_stays_behind() {
    let plane = start_plane(&["n1", "n2"]).await;
    let image = restricted::idle_image().unwrap();
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
    let pods = restricted::namespace(plane.client(), "careful").await.unwrap();
    for node in &nodes {
        node.wait_ready().await.unwrap();
        create(&pods, &RestrictedPod::new(&format!("on-{}", node.name()), image.name()).on(node.name()))
            .await;
    }
    for node in &nodes {
        ready(&pods, &format!("on-{}", node.name()), node).await;
        assert!(node.machine().path("/var/lib/kubelet/device-plugins/kubelet.sock").exists());
    }
    assert_ne!(leftovers(std::process::id()), [""; 0], "the nodes have cgroups");
    let [one, two] = nodes;
    one.stop().await;
    // As after a panic.
    drop(two);
    plane.stop().await;
    assert_eq!(leftovers(std::process::id()), [""; 0]);
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
    let site = Site::with_boards(&["dm0"]).await;
    let boards = &site.boards;
    let pods = site.namespace("shop").await;

    let applied = Instant::now();
    let pod = site.start_sobel(&pods, "sobel").await;
    println!("apply to ready with a board: {} ms", applied.elapsed().as_millis());
    let address = pod.status.unwrap().pod_ip.unwrap();
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::new(patience());
    case.invoke(&http, &address).await.unwrap();

    let tokens = boards.tokens("dm0", "shop");
    let [token] = tokens.as_slice() else { panic!("one pod has {} tokens", tokens.len()) };
    let vendors = tempfile::tempdir().unwrap();
    let driver = programs::built("libfpga_opencl_icd.so").unwrap();
    std::fs::write(vendors.path().join("fpga.icd"), driver.display().to_string()).unwrap();
    assert!(token_works(boards, token, vendors.path()).await, "the token opens the board while the pod runs");
    assert!(!token_works(boards, "0123456789abcdef", vendors.path()).await, "another token does not");

    delete(&pods, "sobel").await;
    let gone = Instant::now();
    wait::until("the token to be dead", async || {
        Ok((!token_works(boards, token, vendors.path()).await).then_some(()))
    })
    .await
    .unwrap();
    println!("pod gone to token dead: {} ms", gone.elapsed().as_millis());
    assert_eq!(boards.tokens("dm0", "shop"), [""; 0]);
    // The node plugin removes the folder after the token.
    wait::until("no claim to be left", async || {
        let claims = std::fs::read_dir(site.node.machine().path("/run/fpga/claims"))?.count();
        anyhow::ensure!(claims == 0, "{claims} are left");
        Ok(Some(()))
    })
    .await
    .unwrap();
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn two_namespaces_with_one_user_id_are_two_tenants_and_each_pod_has_a_token_of_its_own() {
    let site = Site::with_boards(&["dm0", "dm1"]).await;
    let boards = &site.boards;
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::new(patience());
    for namespace in ["mill", "shop"] {
        let pods = site.namespace(namespace).await;
        for name in ["sobel-0", "sobel-1"] {
            let pod = site.start_sobel(&pods, name).await;
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
    site.close().await;
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
async fn kill_and_start(part: Part, site: &mut Site) {
    let Site { node, boards, .. } = site;
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
    let mut site = Site::with_boards(&["dm0"]).await;
    let (old_pods, new_pods) = (site.namespace("old").await, site.namespace("new").await);
    let case = Case::new(Function::Sobel, 64, 1).unwrap();
    let http = HttpClient::new(Duration::from_secs(10));
    let works = async |pods: &Api<Pod>, name: &str| {
        wait::until(&format!("the function {name} to answer"), async || {
            let status = pods.get(name).await?.status.unwrap_or_default();
            let address = status.pod_ip.clone().unwrap_or_default();
            case.invoke(&http, &address).await.map(Some).map_err(|error| error.context(format!("{status:?}")))
        })
        .await
        .unwrap();
    };
    create(&old_pods, &sobel("sobel", &site.image)).await;
    works(&old_pods, "sobel").await;
    let token = site.boards.tokens("dm0", "old");
    assert_eq!(token.len(), 1);
    for part in [Part::Plugin, Part::Manager, Part::Kubelet, Part::Containerd] {
        println!("{part:?} is killed");
        kill_and_start(part, &mut site).await;
        let name = format!("after-{part:?}").to_lowercase();
        create(&new_pods, &sobel(&name, &site.image)).await;
        works(&new_pods, &name).await;
        works(&old_pods, "sobel").await;
        assert_eq!(site.boards.tokens("dm0", "old"), token, "the old pod keeps its token");
        delete(&new_pods, &name).await;
        wait::until("the new pod's token to be revoked", async || {
            Ok(site.boards.tokens("dm0", "new").is_empty().then_some(()))
        })
        .await
        .unwrap();
    }
    site.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn a_pod_waits_for_a_board_with_the_reason_also_while_the_plugin_is_killed() {
    let mut site = Site::with_boards(&["dm0"]).await;
    let pods = site.namespace("shop").await;

    site.boards.kill_manager(0).await;
    create(&pods, &sobel("sobel", &site.image)).await;
    let reason = wait::until("the pod's reason", async || {
        let status = pods.get("sobel").await?.status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        let waiting = containers.into_iter().next().and_then(|container| container.state?.waiting);
        Ok(waiting.and_then(|waiting| waiting.message).filter(|message| message.contains("FPGA")))
    })
    .await
    .unwrap();
    assert!(reason.contains("FPGA device is unhealthy"), "{reason}");

    // The kubelet tries again; the plugin is then in the midst of its waiting.
    let Site { node, boards, .. } = &mut site;
    let before = boards.registrations();
    boards.kill_plugin().await;
    boards.start_manager(node, 0).await.unwrap();
    boards.start_plugin(node).unwrap();
    boards.wait_registered(before).await.unwrap();
    ready(&pods, "sobel", node).await;
    assert_eq!(boards.tokens("dm0", "shop").len(), 1);
    site.close().await;
}
