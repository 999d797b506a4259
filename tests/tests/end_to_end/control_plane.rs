//! The control plane of the test bed: it starts, knows its identities, and leaves no process behind.

use fpga_tests::testbed::control_plane::{ControlPlane, SchedulerConfig};
use fpga_tests::testbed::identity::Identity;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::ListParams;

#[tokio::test]
async fn it_starts_and_holds_everyone_to_his_rights() {
    let mut plane = ControlPlane::start(&["n1"]).await.unwrap();
    plane.start_scheduler(&SchedulerConfig::without_extender()).await.unwrap();
    let version = plane.client().apiserver_version().await.unwrap();
    assert_eq!(version.major, "1");

    let as_node = plane.client_of(&Identity::Node("n1".into())).await.unwrap();
    let pods: Api<Pod> = Api::all(as_node);
    pods.list(&ListParams::default().fields("spec.nodeName=n1")).await.unwrap();
    let as_extender = plane.client_of(&Identity::Extender).await.unwrap();
    let nodes: Api<Node> = Api::all(as_extender);
    let error = nodes.delete("n1", &Default::default()).await.unwrap_err().to_string();
    assert!(error.contains("forbidden"), "{error}");
    plane.stop().await;
}
