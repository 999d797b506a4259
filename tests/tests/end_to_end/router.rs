//! The endpoint picker as the chart installs it, with the rights of its service account on a real API server: the file
//! that it writes for Envoy, and what it does when its own pod is told to end. That a real Envoy follows the file and
//! drains is tested beside the picker (endpoint-picker/tests/it/envoy).

use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests;
use fpga_tests::testbed::process::{Process, ProcessSpec};
use fpga_tests::testbed::programs::built;
use fpga_tests::testbed::wait;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const SERVICE: &str = "sobel";

#[tokio::test]
async fn the_picker_writes_endpoints_as_they_come_and_go_and_has_envoy_drain_when_its_pod_ends() {
    let plane = ControlPlane::shared().await.unwrap();
    manifests::apply(&plane, "router").await.unwrap();
    let namespace = &plane.new_namespace("functions").await.unwrap();
    // In the place of Envoy's administration.
    let admin = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoints = plane.run_dir().path().join("endpoints.json");
    let name = "fpga-endpoint-picker";
    let spec = ProcessSpec::new(name, built(name).unwrap(), plane.run_dir().log(name))
        .args(["--listen", "127.0.0.1:0", "--pod", &format!("{namespace}/router")])
        .args(["--envoy-admin", &admin.local_addr().unwrap().to_string()])
        .arg("--envoy-endpoints")
        .arg(&endpoints)
        .arg("--kubeconfig")
        .arg(plane.kubeconfig(&Identity::Router).unwrap());
    let picker = Process::start(&spec).unwrap();

    let services: Api<Service> = Api::namespaced(plane.client().clone(), namespace);
    let slices: Api<EndpointSlice> = Api::namespaced(plane.client().clone(), namespace);
    let labels = json!({"kubernetes.io/service-name": SERVICE, "fpga-scheduling.io/function": SERVICE});
    let service = json!({
        "metadata": {"name": SERVICE, "labels": {"fpga-scheduling.io/function": SERVICE}},
        "spec": {"ports": [{"port": 80}]},
    });
    services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    // Other tests on the shared control plane have endpoints in the same file, at other addresses.
    let slice = json!({
        "metadata": {"name": SERVICE, "labels": labels},
        "addressType": "IPv4", "ports": [{"port": 8080}],
        "endpoints": [{"addresses": ["198.51.100.61"], "conditions": {"ready": true}}],
    });
    slices.create(&PostParams::default(), &serde_json::from_value(slice).unwrap()).await.unwrap();
    let names = async |wanted: bool| {
        wait::until(&format!("the endpoint to be in the file: {wanted}"), async || {
            picker.check_running()?;
            let text = std::fs::read_to_string(&endpoints)?;
            Ok((text.contains("198.51.100.61") == wanted).then_some(text))
        })
        .await
        .unwrap()
    };
    assert!(names(true).await.contains(&format!("\"sobel.{namespace}\"")));
    slices.delete(SERVICE, &DeleteParams::default()).await.unwrap();
    names(false).await;

    let pods: Api<Pod> = Api::namespaced(plane.client().clone(), namespace);
    let pod = json!({
        "metadata": {"name": "router", "finalizers": ["example.com/stays"]},
        "spec": {"containers": [{"name": "envoy", "image": "none"}]},
    });
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods.delete("router", &DeleteParams::default()).await.unwrap();
    let (mut stream, _) = tokio::time::timeout(patience(), admin.accept()).await.unwrap().unwrap();
    let mut request = [0; 64];
    stream.read_exact(&mut request).await.unwrap();
    assert!(request.starts_with(b"POST /drain_listeners?graceful&skip_exit HTTP/1.1\r\n"));
    stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n").await.unwrap();
    plane.stop().await;
}
