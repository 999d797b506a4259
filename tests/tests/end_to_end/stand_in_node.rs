//! The stand-in kubelet with the real control plane: a pod's status is what its process does.

use anyhow::Result;
use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::node::{Node, NodeSpec};
use fpga_tests::testbed::wait;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;

// In a container's command Kubernetes replaces `$$` by `$`, so a shell's pid is `$$$$`.

const LONG: Duration = Duration::from_secs(60);

struct Bed {
    plane: ControlPlane,
    node: Node,
    pods: Api<Pod>,
}

impl Bed {
    async fn start() -> Self {
        let mut plane = ControlPlane::start(&["n1"]).await.unwrap();
        plane.start_scheduler(&SchedulerConfig::without_extender()).await.unwrap();
        let spec = NodeSpec {
            name: "n1".into(),
            labels: [("fpga-scheduling.io/board".to_owned(), "test".to_owned())].into(),
            network: plane.network().node(0),
            env: [("FROM_NODE".to_owned(), "yes".to_owned())].into(),
            pods_dir: plane.run_dir().path().join("pods"),
        };
        let node =
            Node::start(spec, plane.client_of(&Identity::Node("n1".into())).await.unwrap()).await.unwrap();
        node.wait_ready(LONG).await.unwrap();
        let pods = Api::default_namespaced(plane.client().clone());
        Self { plane, node, pods }
    }

    async fn create(&self, name: &str, script: &str, rest: serde_json::Value) {
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [
                {"name": "main", "image": "local", "command": ["/bin/sh", "-c", script]},
            ]},
        });
        for (key, value) in rest.as_object().into_iter().flatten() {
            match key.as_str() {
                "restartPolicy" => pod["spec"][key] = value.clone(),
                _ => pod["spec"]["containers"][0][key] = value.clone(),
            }
        }
        self.pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    }

    async fn wait_for(&self, name: &str, what: &str, holds: impl Fn(&Pod) -> bool) -> Pod {
        let look =
            async || -> Result<Option<Pod>> { Ok(self.pods.get_opt(name).await?.filter(|pod| holds(pod))) };
        let result = wait::until(&format!("the pod {name} to be {what}"), LONG, look).await;
        match result {
            Ok(pod) => pod,
            Err(error) => panic!("{error:#}; it is {:#?}", self.pods.get_opt(name).await),
        }
    }

    async fn stop(self) {
        self.node.stop().await;
        self.plane.stop().await;
    }
}

fn phase_is(phase: &str) -> impl Fn(&Pod) -> bool {
    move |pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some(phase)
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn exit_code(pod: &Pod) -> Option<i32> {
    let status = pod.status.as_ref()?.container_statuses.as_ref()?.first()?;
    Some(status.state.as_ref()?.terminated.as_ref()?.exit_code)
}

fn is_alive(pid: &str) -> bool {
    std::path::Path::new("/proc").join(pid.trim()).exists()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pod_status_is_what_the_process_does() {
    let bed = Bed::start().await;
    let log = |pod: &str| std::fs::read_to_string(bed.node.pod_dir(pod).join("main.log")).unwrap_or_default();

    bed.create(
        "good",
        "echo $FROM_NODE $NODE_NAME $POD_IP $OWN",
        json!({"env": [{"name": "OWN", "value": "$(POD_IP)!"}]}),
    )
    .await;
    let good = bed.wait_for("good", "Succeeded", phase_is("Succeeded")).await;
    assert_eq!(exit_code(&good), Some(0));
    let ip = good.status.unwrap().pod_ip.unwrap();
    assert_eq!(log("good"), format!("yes n1 {ip} {ip}!\n"));

    bed.create("bad", "echo no >&2; exit 7", json!({})).await;
    assert_eq!(exit_code(&bed.wait_for("bad", "Failed", phase_is("Failed")).await), Some(7));
    bed.create("killed", "kill -9 $$$$", json!({})).await;
    assert_eq!(exit_code(&bed.wait_for("killed", "Failed", phase_is("Failed")).await), Some(137));
    bed.create("absent", "", json!({"command": ["/no/such/program"]})).await;
    let absent = bed.wait_for("absent", "Failed", phase_is("Failed")).await;
    assert!(format!("{:?}", absent.status).contains("can't start absent/main (/no/such/program)"));
    bed.create("imaginary", "", json!({"command": null})).await;
    let imaginary =
        bed.wait_for("imaginary", "refused", |pod| format!("{pod:?}").contains("has no command")).await;
    assert!(phase_is("Pending")(&imaginary));

    // The pod is ready only when its port accepts connections.
    let open = bed.plane.run_dir().path().join("open");
    let serve = format!(
        "until [ -e {} ]; do sleep 0.05; done; exec python3 -m http.server 8080 --bind $POD_IP",
        open.display()
    );
    let ports = json!({"ports": [{"containerPort": 8080}], "restartPolicy": "Always"});
    bed.create("server", &serve, ports).await;
    let server = bed.wait_for("server", "Running", phase_is("Running")).await;
    assert!(!is_ready(&server));
    std::fs::write(&open, "").unwrap();
    bed.wait_for("server", "Ready", is_ready).await;

    bed.create("crashes", "echo once; exit 1", json!({"restartPolicy": "Always"})).await;
    bed.wait_for("crashes", "restarted twice", |pod| format!("{pod:?}").contains("restart_count: 2")).await;
    assert!(log("crashes").starts_with("once\nonce\n"));
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deleted_pod_gets_its_grace_and_leaves_nothing() {
    let bed = Bed::start().await;
    let log = |pod: &str| std::fs::read_to_string(bed.node.pod_dir(pod).join("main.log")).unwrap_or_default();
    let gone = async |name: &str| {
        wait::until("the pod to be gone", LONG, async || {
            Ok(bed.pods.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    };
    let now = DeleteParams::default();

    bed.create("polite", "trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.05; done", json!({}))
        .await;
    wait::until("its output", LONG, async || Ok(log("polite").contains("up").then_some(()))).await.unwrap();
    bed.pods.delete("polite", &DeleteParams::default().grace_period(30)).await.unwrap();
    gone("polite").await.unwrap();
    assert_eq!(log("polite"), "up\nbye\n");

    bed.create("stubborn", "trap '' TERM; echo $$$$; while :; do sleep 0.05; done", json!({})).await;
    wait::until("its output", LONG, async || Ok((!log("stubborn").is_empty()).then_some(()))).await.unwrap();
    let pid = log("stubborn");
    assert!(is_alive(&pid));
    bed.pods.delete("stubborn", &now).await.unwrap();
    gone("stubborn").await.unwrap();
    assert!(!is_alive(&pid));

    bed.create("forced", "echo $$$$; exec sleep 1000", json!({})).await;
    wait::until("its output", LONG, async || Ok((!log("forced").is_empty()).then_some(()))).await.unwrap();
    let pid = log("forced");
    bed.pods.delete("forced", &DeleteParams::default().grace_period(0)).await.unwrap();
    wait::until("its process to end", LONG, async || Ok((!is_alive(&pid)).then_some(()))).await.unwrap();
    bed.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deployments_scale_up_and_down() {
    let bed = Bed::start().await;
    let deployments: Api<Deployment> = Api::default_namespaced(bed.plane.client().clone());
    let deployment = json!({
        "metadata": {"name": "sleepers"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": "sleepers"}},
            "template": {
                "metadata": {"labels": {"app": "sleepers"}},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [
                    {"name": "main", "image": "local", "command": ["sleep", "1000"]},
                ]},
            },
        },
    });
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let available = async |count: i32| {
        wait::until(&format!("{count} available replicas"), LONG, async || {
            let status = deployments.get("sleepers").await?.status.unwrap_or_default();
            let exact =
                (status.replicas.unwrap_or(0), status.available_replicas.unwrap_or(0)) == (count, count);
            Ok(exact.then_some(()))
        })
        .await
        .unwrap();
    };
    available(2).await;
    for count in [5, 1] {
        let scale = Patch::Merge(json!({"spec": {"replicas": count}}));
        deployments.patch_scale("sleepers", &PatchParams::default(), &scale).await.unwrap();
        available(count).await;
    }
    wait::until("the others to be gone", LONG, async || {
        let pods = bed.pods.list(&ListParams::default()).await?;
        Ok((pods.items.len() == 1).then_some(()))
    })
    .await
    .unwrap();
    bed.stop().await;
}
