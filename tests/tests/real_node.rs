//! Real nodes: kubelet and containerd, joined to the control plane of the test bed. `make test-node` runs these tests,
//! as root.

#![allow(clippy::unwrap_used, clippy::panic, reason = "in a test a failure is a panic")]

use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::real_node::{Image, RealNode, RealNodeSpec, RunMount};
use fpga_tests::testbed::{artifacts, wait};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use std::path::Path;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

async fn restricted_namespace(plane: &ControlPlane, name: &str) {
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
}

fn restricted_pod(name: &str, image: &Image, node: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "main",
                "image": image.name(),
                "imagePullPolicy": "Never",
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": {"drop": ["ALL"]},
                },
            }],
        },
    }))
    .unwrap()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// The cgroups and mounts of nodes.
fn leftovers() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let mounts = mounts.lines().filter(|line| line.contains("/nodes/")).map(str::to_owned);
    let hierarchies = std::fs::read_dir("/sys/fs/cgroup").unwrap().flatten();
    let cgroups =
        hierarchies.flat_map(|folder| std::fs::read_dir(folder.path()).into_iter().flatten().flatten());
    let cgroups = cgroups.map(|folder| folder.path().display().to_string());
    mounts.chain(cgroups.filter(|path| path.contains("fpga-test-node-"))).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs root, runc and the CNI plugins: make test-node"]
async fn pods_in_restricted_namespaces_become_ready_on_two_real_nodes_and_nothing_stays_behind() {
    let before = leftovers();
    let mut plane = ControlPlane::start(&["n1", "n2"]).await.unwrap();
    plane.start_scheduler(&SchedulerConfig::without_extender()).await.unwrap();
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
    restricted_namespace(&plane, "careful").await;
    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), "careful");
    for node in &nodes {
        node.wait_ready().await.unwrap();
        let pod = restricted_pod(&format!("on-{}", node.name()), &image, node.name());
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    for node in &nodes {
        let name = format!("on-{}", node.name());
        wait::until(&format!("the pod {name} to be ready"), LONG, async || {
            node.check_running()?;
            let pod = pods.get(&name).await?;
            anyhow::ensure!(is_ready(&pod), "{:?}", pod.status);
            Ok(Some(()))
        })
        .await
        .unwrap();
    }
    for node in nodes {
        assert!(node.machine().path("/var/lib/kubelet/device-plugins/kubelet.sock").exists());
        node.stop().await;
    }
    plane.stop().await;
    assert_eq!(leftovers(), before);
    assert!(!Path::new("/var/lib/kubelet/device-plugins/kubelet.sock").exists());
}
