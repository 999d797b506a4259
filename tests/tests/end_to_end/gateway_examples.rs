//! The examples of gateways (manifests/examples/gateways) on a real API server with the definitions of the Gateway API, its
//! Inference Extension, and Istio, which `hack/gateway-api.sh` brings.

use fpga_tests::testbed::control_plane::ControlPlane;
use fpga_tests::testbed::manifests::kubectl;
use fpga_tests::testbed::programs::{built, repository};
use serde_json::Value;

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
    plane.stop().await;
}
