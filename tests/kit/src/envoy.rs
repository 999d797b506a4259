//! The Envoy of `hack/envoy.sh`, and the configuration that the chart installs, for one machine.

use serde_json::{Value, json};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The program.
pub fn envoy_program() -> PathBuf {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../build/envoy/envoy");
    assert!(program.exists(), "Envoy is missing: run hack/envoy.sh");
    program
}

/// The shipped configuration (`manifests/chart/envoy.yaml`) with these addresses, and without the ports for people and
/// Prometheus. A test's picker may not run for a while on a busy machine, so it has 20 s for each answer.
pub fn envoy_config(listen: SocketAddr, picker: SocketAddr, endpoints: &Path) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/chart/envoy.yaml");
    let mut config: Value = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let socket =
        |address: SocketAddr| json!({"address": address.ip().to_string(), "port_value": address.port()});
    config.as_object_mut().unwrap().remove("admin").unwrap();
    let listeners = config.pointer_mut("/static_resources/listeners").unwrap().as_array_mut().unwrap();
    listeners.retain(|listener| listener["name"] == "functions");
    *of_shipped(&mut config, "/static_resources/listeners/0/address/socket_address") = socket(listen);
    let clusters = of_shipped(&mut config, "/static_resources/clusters").as_array_mut().unwrap();
    clusters.retain(|cluster| cluster["name"] != "admin");
    for cluster in clusters {
        let (pointer, value) = match cluster["name"].as_str().unwrap() {
            "functions" => ("/eds_cluster_config/eds_config/path_config_source/path", json!(endpoints)),
            "picker" => {
                // Envoy gives a picker up after one missed check of its health. A picker that is killed is seen at once.
                *of_shipped(cluster, "/health_checks/0/timeout") = json!("20s");
                (
                    "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address",
                    socket(picker),
                )
            }
            other => panic!("the cluster {other} is not known here"),
        };
        *of_shipped(cluster, pointer) = value;
    }
    // Envoy goes on without a picker that answers later.
    *of_shipped(envoy_ext_proc(&mut config), "/message_timeout") = json!("20s");
    config
}

/// The settings of the filter that asks the picker.
pub fn envoy_ext_proc(config: &mut Value) -> &mut Value {
    let manager = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    let filters = of_shipped(config, &format!("{manager}/http_filters")).as_array_mut().unwrap();
    let mut filters = filters.iter_mut();
    &mut filters.find(|filter| filter["name"] == "envoy.filters.http.ext_proc").unwrap()["typed_config"]
}

fn of_shipped<'c>(config: &'c mut Value, pointer: &str) -> &'c mut Value {
    config.pointer_mut(pointer).unwrap_or_else(|| panic!("the shipped configuration has no {pointer}"))
}
