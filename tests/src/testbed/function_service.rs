//! Services of functions with their endpoints, as the endpoint picker learns them.
//!
//! The test bed writes the endpoints itself: its pods have loopback addresses, which the API server takes in no
//! EndpointSlice of IPv4 addresses. So they are written as names (`FQDN`), whose text is the same.

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use std::net::SocketAddr;

/// A replica of a function.
#[derive(Debug, Clone)]
pub struct FunctionEndpoint {
    /// Address and port.
    pub address: SocketAddr,
    /// Name of its node, which has one board.
    pub node: String,
}

/// Creates the Service of the function `name`, which uses `bitstream`, with these replicas.
///
/// # Errors
/// The API server refuses an object.
pub async fn create(
    client: &Client,
    name: &str,
    bitstream: &str,
    endpoints: &[FunctionEndpoint],
) -> Result<()> {
    let service = serde_json::from_value::<Service>(json!({
        "metadata": {
            "name": name,
            "labels": {"fpga-scheduling.io/function": ""},
            "annotations": {"fpga-scheduling.io/bitstreams": bitstream},
        },
        "spec": {"ports": [{"port": 80}]},
    }));
    let services: Api<Service> = Api::default_namespaced(client.clone());
    services.create(&PostParams::default(), &service.context("no Service")?).await?;
    let slices: Api<EndpointSlice> = Api::default_namespaced(client.clone());
    // All endpoints of a slice have one port.
    for (number, endpoint) in endpoints.iter().enumerate() {
        slices.create(&PostParams::default(), &slice(name, number, endpoint)?).await?;
    }
    Ok(())
}

fn slice(name: &str, number: usize, endpoint: &FunctionEndpoint) -> Result<EndpointSlice> {
    let slice: Value = json!({
        "metadata": {
            "name": format!("{name}-{number}"),
            "labels": {"kubernetes.io/service-name": name, "fpga-scheduling.io/function": ""},
        },
        "addressType": "FQDN",
        "ports": [{"port": endpoint.address.port()}],
        "endpoints": [{
            "addresses": [endpoint.address.ip().to_string()],
            "conditions": {"ready": true},
            "nodeName": endpoint.node,
        }],
    });
    serde_json::from_value(slice).context("no EndpointSlice")
}
