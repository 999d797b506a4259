//! The chart with all that it has, for parts that are processes on one node.

use super::ports::{EVERYTHING, objects};
use fpga_test_kit::Authority;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::{NAMESPACE, kubectl};
use k8s_openapi::ByteString;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::Path;

/// The node.
pub const NODE: &str = "n1";
const EXTERNAL_METRICS: &str = "v1beta1.external.metrics.k8s.io";

/// Applies the chart with all that it has, the node, and the certificates.
pub async fn install(
    plane: &ControlPlane,
    addresses: &BTreeMap<&str, Ipv4Addr>,
    files: &str,
    authority: &Authority,
) {
    let host = format!("nodePlugin.library.hosts[0]=http://{files}");
    let settings = [&EVERYTHING[..], &[host.as_str()]].concat();
    let mut objects = objects(&settings);
    for object in &mut objects {
        if object["metadata"]["name"] == EXTERNAL_METRICS {
            object["spec"]["service"]["port"] = json!(9466);
            object["spec"]["caBundle"] = json!(ByteString(std::fs::read(&authority.ca).unwrap()));
        }
        // Addresses of the test bed's pods can't be endpoints.
        if object["kind"] == "Service" && object["metadata"]["name"] == "fpga-external-metrics" {
            object["spec"] =
                json!({"type": "ExternalName", "externalName": addresses["fpga-router"].to_string()});
        }
    }
    let order = |object: &Value| match object["kind"].as_str().unwrap() {
        "Namespace" => 0,
        "CustomResourceDefinition" => 1,
        _ => 2,
    };
    objects.sort_by_key(order);
    let labels = json!({
        "fpga-scheduling.io/fpga-vendor": "pocl", "fpga-scheduling.io/board": "pocl", "fpga-scheduling.io/shell-version": "1",
    });
    objects.push(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "labels": labels}}));
    let _ = kubectl(plane, &["create", "namespace", NAMESPACE]).await;
    apply_all(plane, objects).await;
    apply_all(plane, secrets(addresses, authority)).await;
}

/// What the Job for certificates makes, for addresses besides: there is no DNS here.
fn secrets(addresses: &BTreeMap<&str, Ipv4Addr>, authority: &Authority) -> Vec<Value> {
    let secret = |name: &str, data: Value| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NAMESPACE}, "data": data});
    let bytes = |path: &Path| ByteString(std::fs::read(path).unwrap());
    let of_services = [
        ("fpga-extender-stream-tls", "fpga-scheduler-extender", "fpga-scheduler-extender"),
        ("fpga-router-stream-tls", "fpga-router", "fpga-endpoint-picker"),
        ("fpga-external-metrics-tls", "fpga-router", "fpga-external-metrics"),
        ("fpga-pool-tls", "fpga-pool", "fpga-pool"),
    ];
    let mut objects: Vec<Value> = of_services
        .map(|(name, program, service)| {
            let names = [addresses[program].to_string(), format!("{service}.{NAMESPACE}.svc")];
            let identity = authority.issue(name, &names.each_ref().map(String::as_str));
            secret(name, json!({"tls.crt": bytes(&identity.certificate), "tls.key": bytes(&identity.key)}))
        })
        .to_vec();
    objects.push(secret("fpga-pool-ticket-key", json!({"key": ByteString("7".repeat(64).into_bytes())})));
    let ca = std::fs::read_to_string(&authority.ca).unwrap();
    let map = json!({"name": "fpga-stream-ca", "namespace": NAMESPACE});
    objects.push(json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": map, "data": {"ca.crt": ca}}));
    objects
}

async fn apply_all(plane: &ControlPlane, objects: Vec<Value>) {
    let file = plane.run_dir().path().join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&file, list.to_string()).unwrap();
    let apply = ["apply", "--server-side", "--force-conflicts", "-f", file.to_str().unwrap()];
    kubectl(plane, &apply).await.unwrap();
}
