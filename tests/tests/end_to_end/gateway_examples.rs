//! The examples of gateways (manifests/examples/gateways) on a real API server with the definitions of the Gateway API, its
//! Inference Extension, and Istio, which `hack/gateway-api.sh` brings.

use fpga_test_kit::patience;
use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::http_client::HttpClient;
use fpga_tests::testbed::identity::Identity;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::picker::Picker;
use fpga_tests::testbed::programs::{built, repository};
use fpga_tests::testbed::wait;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};

#[tokio::test]
async fn the_api_server_takes_the_examples_for_gateways_as_they_are_and_the_picker_knows_its_arguments() {
    let definitions = repository().join("build/gateway-api");
    assert!(definitions.exists(), "{} is missing: run hack/gateway-api.sh", definitions.display());
    let plane = ControlPlane::shared().await.unwrap();
    let definitions = ["apply", "--server-side", "-f", definitions.to_str().unwrap()];
    kubectl(&plane, &definitions).await.unwrap();
    kubectl(&plane, &["wait", "--for=condition=established", "crd", "--all", "--timeout=60s"]).await.unwrap();
    for gateway in ["istio", "agentgateway"] {
        let example = repository().join("manifests/examples/gateways").join(gateway);
        let apply = ["apply", "--server-side", "--validate=strict", "-k", example.to_str().unwrap()];
        let output = kubectl(&plane, &apply).await.unwrap();
        assert!(!output.contains("Warning"), "{gateway}: {output}");
        for object in
            ["inferencepool.inference.networking.k8s.io/sobel", "httproute.gateway.networking.k8s.io/sobel"]
        {
            assert!(output.contains(&format!("{object} serverside-applied")), "{gateway}: {output}");
        }
    }
    // What the definitions refuse shows that they check anything.
    let wrong = r#"{"spec":{"endpointPickerRef":{"failureMode":"FailSometimes"}}}"#;
    let patch = ["patch", "inferencepool/sobel", "-n", "fpga-functions", "--type=merge", "-p", wrong];
    let error = kubectl(&plane, &patch).await.unwrap_err().to_string();
    assert!(error.contains("FailSometimes"), "{error}");

    let get = ["get", "deployment/sobel-picker", "-n", "fpga-functions", "-o", "json"];
    let picker: Value = serde_json::from_str(&kubectl(&plane, &get).await.unwrap()).unwrap();
    let container = &picker["spec"]["template"]["spec"]["containers"][0];
    let output = tokio::process::Command::new(built("fpga-endpoint-picker").unwrap()).arg("--help").output();
    let help = String::from_utf8(output.await.unwrap().stdout).unwrap();
    for argument in container["args"].as_array().unwrap() {
        let flag = argument.as_str().unwrap().split('=').next().unwrap();
        assert!(help.contains(flag), "{flag} is no argument of:\n{help}");
    }
    the_picker_follows_the_pools_port(&plane).await;
    plane.stop().await;
}

/// A pod with an address of each family is one replica, at the port of the InferencePool, also when that changes.
async fn the_picker_follows_the_pools_port(plane: &ControlPlane) {
    for (family, address) in [("IPv4", "10.1.2.3"), ("IPv6", "fd00::3")] {
        let slice = json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": family,
            "metadata": {
                "name": format!("sobel-{}", family.to_lowercase()),
                "labels": {"kubernetes.io/service-name": "sobel", "fpga-scheduling.io/function": "sobel"},
            },
            "endpoints": [{"addresses": [address], "conditions": {"ready": true},
                           "targetRef": {"kind": "Pod", "name": "sobel-1", "uid": "1"}}],
            "ports": [{"name": "metrics", "port": 9090}, {"name": "http", "port": 8080}],
        });
        let slice: EndpointSlice = serde_json::from_value(slice).unwrap();
        let slices: Api<EndpointSlice> = Api::namespaced(plane.client().clone(), "fpga-functions");
        slices.create(&PostParams::default(), &slice).await.unwrap();
    }
    let http = HttpClient::new(patience());
    let kubeconfig = plane.kubeconfig(&Identity::Admin).unwrap();
    let args = ["--function=fpga-functions/sobel", "--inference-pool=sobel"];
    let ip = plane.network().control_plane();
    let picker = Picker::start(ip, kubeconfig, plane.run_dir(), &http, &args).await.unwrap();
    let until = async |expected: &str| {
        wait::until(&format!("one replica at {expected}"), async || {
            let view = http.get(&picker.url("/functions")).await?.text();
            let is_at = view.contains(&format!(r#""address":"{expected}""#));
            Ok((is_at && view.matches(r#""address":"#).count() == 1).then_some(()))
        })
        .await
        .unwrap();
    };
    until("10.1.2.3:8080").await;
    let patch = r#"{"spec":{"targetPorts":[{"number":9000}]}}"#;
    kubectl(plane, &["patch", "inferencepool/sobel", "-n", "fpga-functions", "--type=merge", "-p", patch])
        .await
        .unwrap();
    until("10.1.2.3:9000").await;
}
