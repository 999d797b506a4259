//! The stand-in kubelet with the real control plane: a pod's status is what its process does, and the process ends with
//! the pod.

use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::node::{Node, NodeSpec};
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use std::path::Path;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_status_is_what_the_process_does_and_the_process_ends_with_the_pod() {
    let mut plane = ControlPlane::start(&["n1"]).await.unwrap();
    plane.start_scheduler(&SchedulerConfig::without_extender()).await.unwrap();
    let spec = NodeSpec {
        name: "n1".into(),
        labels: [("fpga-scheduling.io/board".to_owned(), "test".to_owned())].into(),
        network: plane.network().node(0),
        env: [("FROM_NODE".to_owned(), "yes".to_owned())].into(),
        pods_dir: plane.run_dir().path().join("pods"),
    };
    let client = plane.client_of(&Identity::Node("n1".into())).await.unwrap();
    let node = Node::start(spec, client).await.unwrap();
    node.wait_ready(patience()).await.unwrap();
    let pods: Api<Pod> = Api::default_namespaced(plane.client().clone());
    // In a container's command Kubernetes replaces `$$` by `$`, so a shell's pid is `$$$$`.
    let stubborn = "trap '' TERM; echo $$$$; while :; do sleep 0.05; done";
    for (name, script) in [("good", "echo $FROM_NODE $NODE_NAME"), ("bad", "exit 7"), ("stubborn", stubborn)]
    {
        let container = json!({"name": "main", "image": "local", "command": ["/bin/sh", "-c", script]});
        let spec =
            json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]});
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}));
        pods.create(&PostParams::default(), &pod.unwrap()).await.unwrap();
    }
    let exit_code = async |name: &str| {
        wait::until(&format!("the end of the pod {name}"), async || {
            let status = pods.get(name).await?.status.unwrap_or_default();
            let container = status.container_statuses.unwrap_or_default().pop();
            Ok(container.and_then(|container| Some(container.state?.terminated?.exit_code)))
        })
        .await
        .unwrap()
    };
    let log = |name: &str| std::fs::read_to_string(node.pod_dir(name).join("main.log")).unwrap_or_default();
    assert_eq!(exit_code("good").await, 0);
    assert_eq!(log("good"), "yes n1\n");
    assert_eq!(exit_code("bad").await, 7);

    let pid = wait::until("the pid", async || Ok(log("stubborn").trim().parse::<u32>().ok()));
    let pid = pid.await.unwrap();
    let is_alive = || Path::new("/proc").join(pid.to_string()).exists();
    assert!(is_alive());
    pods.delete("stubborn", &DeleteParams::default()).await.unwrap();
    wait::until("the pod to be gone", async || Ok(pods.get_opt("stubborn").await?.is_none().then_some(())))
        .await
        .unwrap();
    assert!(!is_alive());
    node.stop().await;
    plane.stop().await;
}
