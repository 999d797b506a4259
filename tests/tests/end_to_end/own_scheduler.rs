//! The scheduler of the chart: two of its pods, each with the shipped kube-scheduler and extender, on a real API server.
//! A pod that says one line is placed, and another replica leads when the leader's extender has gone.
//! `testbed::shipped` has the stand-ins for a kubelet; what a livenessProbe does is below.

use fpga_test_kit::patience;
use fpga_tests::testbed::manifests::{self, NAMESPACE, kubectl};
use fpga_tests::testbed::process::Process;
use fpga_tests::testbed::scale::ScaleBed;
use fpga_tests::testbed::scale::nodes::{Ground, name};
use fpga_tests::testbed::scale::pods::Kind;
use fpga_tests::testbed::shipped::ShippedPod;
use fpga_tests::testbed::wait;
use nix::sys::signal::Signal;
use serde_json::Value;
use std::net::Ipv4Addr;

const WORKLOAD: &str = "deployment/fpga-scheduler-extender";

/// A running pod of the scheduler.
struct Replica {
    address: Ipv4Addr,
    extender: Process,
    scheduler: Process,
}

/// Starts a pod on the node with this index: the sidecar first, then kube-scheduler.
async fn start(bed: &ScaleBed, index: usize) -> Replica {
    let (node, plane) = (name(index), bed.plane());
    let address = plane.network().node(0).pods().nth(200 + index).unwrap();
    let root = plane.run_dir().path().join(&node);
    let pod = ShippedPod::create(plane, WORKLOAD, &node, address, &root).await.unwrap();
    let extender = Process::start(&pod.process(plane, "extender").await.unwrap()).unwrap();
    extender.wait_ready(bed.http(), &format!("http://{address}:9464/readyz"), patience()).await.unwrap();
    let scheduler = Process::start(&pod.kube_scheduler(plane).await.unwrap()).unwrap();
    Replica { address, extender, scheduler }
}

/// Waits until one of the kube-schedulers leads that did not lead before, and returns its identity.
async fn leader(bed: &ScaleBed, before: Option<&str>) -> String {
    let lease = ["get", "lease", "kube-fpga-scheduler", "-n", NAMESPACE, "--ignore-not-found"];
    let holder = [&lease[..], &["-o", "jsonpath={.spec.holderIdentity}"]].concat();
    wait::until("a kube-scheduler to lead", async || {
        let holder = kubectl(bed.plane(), &holder).await?;
        Ok((!holder.is_empty() && Some(holder.as_str()) != before).then_some(holder))
    })
    .await
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pods_with_one_line_are_placed_and_a_leader_without_its_extender_is_replaced() {
    // kube-scheduler alone tells nodes with boards from others, and the extender knows which board has the bitstream.
    let ground = Ground::advertising(40, 20);
    let bed = ScaleBed::start(ground).await.unwrap();
    manifests::apply(bed.plane(), "pocl").await.unwrap();
    // Argo CD applies no Leases.
    kubectl(bed.plane(), &["delete", "lease", "kube-fpga-scheduler", "-n", NAMESPACE]).await.unwrap();
    let first = start(&bed, 0).await;
    let led_first = leader(&bed, None).await;
    let second = start(&bed, 1).await;
    wait::until("the pods' policy to hold", async || {
        let dry_run = ["run", "tried", "--image=none", "--dry-run=server", "-o=jsonpath={.spec.schedulerName}"];
        let board = r#"--overrides={"spec": {"containers": [{"name": "tried", "image": "none", "resources": {"limits": {"fpga-scheduling.io/accelerated": "1"}}}]}}"#;
        let name = kubectl(bed.plane(), &[&dry_run[..], &[board]].concat()).await?;
        Ok((name == "kube-fpga").then_some(()))
    })
    .await
    .unwrap();

    bed.create_pods("by-bitstream", Kind::OneLine, 1).await.unwrap();
    bed.wait_until_placed("by-bitstream", 1).await.unwrap();
    assert_eq!(bed.placements("by-bitstream").await.unwrap()["by-bitstream-0"], name(ground.holder()));

    // The leader's extender goes, and the kubelet asks what the manifests say.
    let json = kubectl(bed.plane(), &["get", WORKLOAD, "-n", NAMESPACE, "-o", "json"]).await.unwrap();
    let mut deployment: Value = serde_json::from_str(&json).unwrap();
    let scheduler = deployment["spec"]["template"]["spec"]["containers"][0].take();
    let probe = &scheduler["livenessProbe"]["httpGet"];
    let port = probe["port"].as_u64().unwrap();
    let url =
        |replica: &Replica| format!("http://{}:{port}{}", replica.address, probe["path"].as_str().unwrap());
    let alive = async |replica: &Replica| {
        bed.http().get(&url(replica)).await.is_ok_and(|answer| answer.status.is_success())
    };
    assert!(alive(&first).await && alive(&second).await);
    first.extender.kill().await;
    bed.create_pods("meanwhile", Kind::OneLine, 20).await.unwrap();
    assert!(!alive(&first).await && alive(&second).await);
    first.scheduler.signal(Signal::SIGTERM);
    let led_then = leader(&bed, Some(&led_first)).await;
    bed.wait_until_placed("meanwhile", 20).await.unwrap();
    let boards: Vec<String> = ground.with_boards().map(name).collect();
    let placements = bed.placements("meanwhile").await.unwrap();
    assert!(placements.values().all(|node| boards.contains(node)), "{placements:?}");

    // A rolling update: the next pod is there before the leader ends, and pods come all the time.
    let third = start(&bed, 2).await;
    for batch in 0..10 {
        bed.create_pods(&format!("update-{batch}"), Kind::OneLine, 5).await.unwrap();
        if batch == 3 {
            second.scheduler.signal(Signal::SIGTERM);
        }
    }
    leader(&bed, Some(&led_then)).await;
    for batch in 0..10 {
        bed.wait_until_placed(&format!("update-{batch}"), 5).await.unwrap();
    }
    third.scheduler.check_running().unwrap();
    for replica in [second, third] {
        replica.scheduler.stop(patience()).await;
        replica.extender.stop(patience()).await;
    }
    bed.stop().await;
}
